package outboardtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// Stages on two nodes, each of which continues in another process after its first step, print what an
// undisturbed job prints: losses, parameters and random numbers to the last bit, each line once. Each
// of the six processes imports PyTorch, which is what the test costs; the stages of
// TestStagesWithALimitAreBitEqual of package cli continue twice, on one node.
func TestStagesWithALimitOverNodes(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	script, err := os.ReadFile(filepath.Join("..", "internal", "cli", "testdata", "limit.py"))
	if err != nil {
		t.Fatal(err)
	}
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy"}}, Jobs: "trusted"})
	onePerNode, err := outboard.ParseSelector("type=cpu")
	if err != nil {
		t.Fatal(err)
	}
	const ranks, steps = 2, 2
	run := func(limit string) (client.Job, []string) {
		j, lines := submit(t, p.Node("harbour"), client.JobSpec{
			Selector: onePerNode, Ranks: ranks, StageLimit: limit, Env: map[string]string{"OMP_NUM_THREADS": "1", "STEPS": strconv.Itoa(steps)},
			Args: []string{"/usr/bin/python3", "-c", string(script)},
		}, nil)
		if j.State != client.JobSucceeded || len(j.Ranks) != ranks || j.Ranks[0].Node == j.Ranks[1].Node {
			t.Fatalf("%s (%s) on %+v: %q", j.State, j.Reason, j.Ranks, lines)
		}
		slices.Sort(lines)
		return j, lines
	}
	_, want := run("")
	j, got := run("1ms")
	if len(want) != ranks*(steps+1) || !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ended := regexp.MustCompile(`(?m)^rank \d, stage limit: 1 processes have ended`)
	if n := len(ended.FindAllString(strings.Join(j.Why, "\n"), -1)); n != ranks {
		t.Errorf("%d of %d stages say that they were started again: %q", n, ranks, j.Why)
	}
}
