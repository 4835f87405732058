package outboardtest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// Large all-reduces between two nodes, which ranks make in pieces, have the sums of whole ones; and
// ranks that disagree on the size of such a call end with both sizes.
func TestLargeAllReducesOverNodes(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	script, err := os.ReadFile(filepath.Join("..", "test", "e2e", "testdata", "train", "pieces.py"))
	if err != nil {
		t.Fatal(err)
	}
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy"}}, Jobs: "trusted"})
	ranks := deviceCount(t, p)
	j, lines := submit(t, p.Node("harbour"), client.JobSpec{
		Ranks: ranks, Env: map[string]string{"OMP_NUM_THREADS": "1"}, Args: []string{"/usr/bin/python3", "-c", string(script)},
	}, nil)
	equal := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasSuffix(l, " equal") })
	if j.State != client.JobFailed || len(equal) != ranks {
		t.Errorf("%s (%s): %d of %d ranks have the sums:\n%s", j.State, j.Reason, len(equal), ranks, strings.Join(lines, "\n"))
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{"ranks disagree", "all-reduce (sum) of 4194304 float32", "all-reduce (sum) of 5242880 float32"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}
