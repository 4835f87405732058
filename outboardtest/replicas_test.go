package outboardtest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// Two replicas of a pipeline of two stages, on two nodes, come to the parameters of one process: the
// gradients of the first stage are summed through a bucket, and those of the last one, which are few,
// over the fabric.
func TestStageReplicasOverNodes(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	script, err := os.ReadFile(filepath.Join("..", "test", "e2e", "testdata", "train", "replicas.py"))
	if err != nil {
		t.Fatal(err)
	}
	s, url := bucket(t)
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy"}}, Jobs: "trusted", Objects: url})
	const replicas = 2
	devices := deviceCount(t, p)
	ranks := 2 * replicas
	spec := client.JobSpec{
		Ranks: ranks, PerDevice: max(1, ranks/devices), Gradients: "store", Env: map[string]string{"OMP_NUM_THREADS": "1"},
		Args: []string{"/usr/bin/python3", "-c", string(script), strconv.Itoa(replicas)},
	}
	j, lines := submit(t, p.Node("harbour"), spec, nil)
	equal := 0
	for _, l := range lines {
		if strings.HasSuffix(l, " equal") {
			equal++
		}
	}
	if j.State != client.JobSucceeded || len(j.Ranks) < 2 || equal != ranks*4 {
		t.Errorf("%s (%s), %d of %d equal:\n%s", j.State, j.Reason, equal, ranks*4, strings.Join(lines, "\n"))
	}
	if !slices.ContainsFunc(s.Names(), func(name string) bool { return strings.HasPrefix(name, "/pool/team/sums/"+j.ID) }) {
		t.Errorf("the bucket has %q, want parts of the gradients", s.Names())
	}
}
