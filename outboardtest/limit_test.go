package outboardtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// Stages on two nodes, each of which continues in another process after every step, print what an
// undisturbed job prints: losses, parameters and random numbers to the last bit, each line once.
func TestStagesWithALimitOverNodes(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	script, err := os.ReadFile(filepath.Join("..", "internal", "cli", "testdata", "limit.py"))
	if err != nil {
		t.Fatal(err)
	}
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy"}}, Jobs: "trusted"})
	const ranks = 4
	perDevice := max(1, ranks/deviceCount(t, p))
	run := func(limit string) (client.Job, []string) {
		j, lines := submit(t, p.Node("harbour"), client.JobSpec{
			Ranks: ranks, PerDevice: perDevice, StageLimit: limit, Env: map[string]string{"OMP_NUM_THREADS": "1"},
			Args: []string{"/usr/bin/python3", "-c", string(script)},
		}, nil)
		if j.State != client.JobSucceeded || len(j.Ranks) < 2 {
			t.Fatalf("%s (%s) on %d devices: %q", j.State, j.Reason, len(j.Ranks), lines)
		}
		slices.Sort(lines)
		return j, lines
	}
	_, want := run("")
	j, got := run("1ms")
	if len(want) < ranks*4 || !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ended := regexp.MustCompile(`(?m)^rank \d, stage limit: 2 processes have ended`)
	if n := len(ended.FindAllString(strings.Join(j.Why, "\n"), -1)); n != ranks {
		t.Errorf("%d of %d stages say that they were started again: %q", n, ranks, j.Why)
	}
}
