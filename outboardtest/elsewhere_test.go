package outboardtest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// A stage whose time is over continues on another node: losses, parameters and random numbers are those
// of an undisturbed job to the last bit, each line is printed once, and nothing counts as a restart.
func TestStageContinuesOnAnotherNode(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	script, err := os.ReadFile(filepath.Join("..", "internal", "cli", "testdata", "limit.py"))
	if err != nil {
		t.Fatal(err)
	}
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy"}, {Name: "east"}}, Jobs: "trusted"})
	onePerNode, err := outboard.ParseSelector("type=cpu")
	if err != nil {
		t.Fatal(err)
	}
	const ranks, steps = 2, 2
	places := make(map[outboard.NodeID]bool) // of rank 0
	run := func(limit string) (client.Job, []string) {
		j, lines := submit(t, p.Node("harbour"), client.JobSpec{
			Selector: onePerNode, Ranks: ranks, StageLimit: limit, Restarts: 1, Env: map[string]string{"OMP_NUM_THREADS": "1", "STEPS": strconv.Itoa(steps)},
			Args: []string{"/usr/bin/python3", "-c", string(script)},
		}, func(l client.JobLine) { t.Logf("%+v", l) })
		if j.State != client.JobSucceeded || len(j.Ranks) != ranks || j.Ranks[0].Node == j.Ranks[1].Node {
			t.Fatalf("%s (%s) on %+v: %q", j.State, j.Reason, j.Ranks, lines)
		}
		slices.Sort(lines)
		return j, lines
	}
	_, want := run("")
	j, got := run("1ms,elsewhere")
	if len(want) != ranks*(steps+1) || !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	t.Logf("%+v %v", j, places)
}
