package outboardtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// waitForGo has a program wait for a file before it starts.
const waitForGo = `import os, time
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
`

// The stage of rank 0, whose process has the store of torch.distributed, continues on another node after
// its first step. After the second step no other device is free, and both stages continue where they
// are. Losses, parameters and random numbers are those of an undisturbed job to the last bit, and each
// line is printed once.
func TestStageContinuesOnAnotherNode(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	script, err := os.ReadFile(filepath.Join("..", "internal", "cli", "testdata", "limit.py"))
	if err != nil {
		t.Fatal(err)
	}
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy"}, {Name: "east"}}, Jobs: "trusted"})
	n, ready := p.Node("harbour"), filepath.Join(t.TempDir(), "go")
	const ranks, steps = 2, 3
	run := func(limit, ready string) (client.Job, []string) {
		j, lines := submit(t, n, client.JobSpec{
			Selector: selector(t, "type=cpu"), Ranks: ranks, StageLimit: limit, Args: []string{"/usr/bin/python3", "-c", waitForGo + string(script)},
			Env: map[string]string{"OMP_NUM_THREADS": "1", "STEPS": strconv.Itoa(steps), "GO": ready},
		}, nil)
		if j.State != client.JobSucceeded || len(j.Ranks) != ranks || j.Ranks[0].Node == j.Ranks[1].Node {
			t.Fatalf("%s (%s) on %+v: %q", j.State, j.Reason, j.Ranks, lines)
		}
		return j, lines
	}
	_, want := run("", os.DevNull)
	var first []client.JobRank
	var waiting sync.WaitGroup
	waiting.Go(func() { first = queueForTheFirstDevice(t, n, ready) })
	j, got := run("1ms,elsewhere", ready)
	waiting.Wait()
	if len(want) != ranks*(steps+1) || !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(first) != ranks || j.Ranks[0].Node == first[0].Node || j.Ranks[1] != first[1] || j.Attempt != 2 {
		t.Errorf("in attempt %d the ranks are on %+v, at first they were on %+v: want rank 0 on another node, once", j.Attempt, j.Ranks, first)
	}
	why := strings.Join(j.Why, "\n")
	if stayed := regexp.MustCompile(`(?m)^rank \d, stage limit: 1 processes have ended`).FindAllString(why, -1); len(stayed) != ranks || !strings.Contains(why, "stages continue on other nodes: 1 rank(s) from rank 0 on") {
		t.Errorf("the job says %q", why)
	}
}

func selector(t *testing.T, text string) outboard.Selector {
	t.Helper()
	s, err := outboard.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// queueForTheFirstDevice returns the places of the ranks of a job that is about to run on a node, and
// queues a request for the device of rank 0: the request gets the device as soon as the job has left it,
// and gives it back with the test. The ranks may start when the file exists.
func queueForTheFirstDevice(t *testing.T, n *outboardtest.Node, file string) (places []client.JobRank) {
	eventually(t, "the job runs", func() bool {
		jobs, err := n.Client().Jobs(t.Context())
		for _, j := range jobs {
			if j.State == client.JobRunning && j.Spec.StageLimit != "" { // the list may lag behind the end of the job before
				places = j.Ranks
			}
		}
		return err == nil && len(places) > 0
	})
	queued := sync.OnceFunc(func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	defer queued() // without a wait, too: the test fails then, and does not hang
	h, err := n.Client().Acquire(t.Context(), client.LeaseRequest{Selector: selector(t, string(places[0].Device))}, func(client.Waiting) { queued() })
	if err != nil {
		t.Errorf("the device of rank 0 has not become free: %v", err)
		return places
	}
	t.Cleanup(func() { h.Close() })
	return places
}
