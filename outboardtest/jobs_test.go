package outboardtest_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// jobLimit ends a job that hangs, so that its test tells what it waits for.
const jobLimit = 10 * time.Minute

// submit runs a job to its end and returns its lines, sorted, "RANK TEXT". onLine, if not nil, is
// called with each.
func submit(t *testing.T, n *outboardtest.Node, spec client.JobSpec, onLine func(client.JobLine)) (client.Job, []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), jobLimit)
	defer cancel()
	var lines []string
	j, err := n.Client().SubmitJob(ctx, spec, func(e client.JobEvent) error {
		if e.Line != nil && e.Line.Rank >= 0 {
			lines = append(lines, fmt.Sprintf("%d %s", e.Line.Rank, e.Line.Text))
		}
		if e.Line != nil && onLine != nil {
			onLine(*e.Line)
		}
		return nil
	})
	if err != nil {
		jobs, _ := n.Client().Jobs(t.Context())
		t.Fatalf("%v: jobs %+v, lines %q", err, jobs, lines)
	}
	slices.Sort(lines)
	return j, lines
}

func shell(ranks int, script string) client.JobSpec {
	return client.JobSpec{Ranks: ranks, Args: []string{"/bin/sh", "-c", script}}
}

func threeNodes(t *testing.T, jobs string) *outboardtest.Pool {
	return outboardtest.Start(t, outboardtest.Options{
		Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true}, {Name: "east"}, {Name: "west"}}, Jobs: jobs,
	})
}

func deviceCount(t *testing.T, p *outboardtest.Pool) int {
	t.Helper()
	devices, err := p.Node("harbour").Client().Devices(t.Context(), outboard.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	return len(devices)
}

// A job's ranks run on the nodes of its devices, with what torch.distributed reads; a failure on
// one node ends those of the other, and is the one that is shown.
func TestJobOverNodes(t *testing.T) {
	p := threeNodes(t, "trusted")
	n := deviceCount(t, p)
	j, lines := submit(t, p.Node("harbour"), shell(n, `echo rank $RANK of $WORLD_SIZE on $OUTBOARD_NODE of $OUTBOARD_NODES`), nil)
	if j.State != client.JobSucceeded || len(lines) != n {
		t.Fatalf("%s (%s): %q", j.State, j.Reason, lines)
	}
	if want := fmt.Sprintf("0 rank 0 of %d on 0 of 2", n); lines[0] != want {
		t.Errorf("rank 0 wrote %q, want %q", lines[0], want)
	}
	if last := lines[n-1]; !strings.HasSuffix(last, "on 1 of 2") {
		t.Errorf("the last rank wrote %q, want that it is on node 1", last)
	}
	j, _ = submit(t, p.Node("harbour"), shell(n, `if [ $RANK = 1 ]; then exit 7; fi; sleep 1000 & wait`), nil)
	if j.State != client.JobFailed || j.Status != 7 || !strings.Contains(j.Reason, "rank 1 failed first, with status 7") {
		t.Errorf("%s, status %d: %q, want that of rank 1", j.State, j.Status, j.Reason)
	}
	// The node learns of their ends from the pool's state.
	eventually(t, "the leases have ended", func() bool {
		leases, err := p.Node("harbour").Client().Leases(t.Context())
		return err == nil && len(leases) == 0
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// A node runs nothing of a job's unless its operator allows it.
func TestJobIsRefusedByDefault(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}}})
	j, _ := submit(t, p.Node("harbour"), shell(1, "echo here"), nil)
	if j.State != client.JobFailed || !strings.Contains(j.Reason, "--jobs confined") {
		t.Errorf("%s: %q, want what allows it", j.State, j.Reason)
	}
}

// A rank that is killed is lost, and the ranks start again; so often as the job says.
func TestJobGoesOnAfterAKilledRank(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}}, Jobs: "trusted"})
	spec := shell(2, `if [ $OUTBOARD_ATTEMPT = 1 ]; then [ $RANK = 1 ] && kill -9 $$; sleep 1000 & wait; fi; echo attempt $OUTBOARD_ATTEMPT`)
	spec.PerDevice = 2
	j, lines := submit(t, p.Node("harbour"), spec, nil)
	if j.State != client.JobSucceeded || j.Attempt != 2 || !slices.Contains(lines, "1 attempt 2") {
		t.Errorf("%s after %d attempts (%s): %q, want success with the second", j.State, j.Attempt, j.Reason, lines)
	}
	spec = shell(1, "kill -9 $$")
	spec.Restarts = 1
	j, _ = submit(t, p.Node("harbour"), spec, nil)
	if j.State != client.JobFailed || j.Status != 137 || !strings.Contains(j.Reason, "rank 0 was killed (SIGKILL) on node harbour, after 1 restarts") {
		t.Errorf("%s, status %d: %q, want failure after one restart", j.State, j.Status, j.Reason)
	}
}

// When a node leaves, the job goes on with the ranks that there are devices for.
func TestJobGoesOnWithoutALostNode(t *testing.T) {
	p := threeNodes(t, "trusted")
	n := deviceCount(t, p)
	spec := shell(n, `echo attempt $OUTBOARD_ATTEMPT of $WORLD_SIZE; [ $OUTBOARD_ATTEMPT = 2 ] || { sleep 1000 & wait; }`)
	spec.MinRanks = n / 2
	var once sync.Once
	var stopping sync.WaitGroup
	j, lines := submit(t, p.Node("harbour"), spec, func(l client.JobLine) {
		if l.Node == "west" {
			once.Do(func() { stopping.Go(p.Node("west").Stop) })
		}
	})
	stopping.Wait()
	if j.State != client.JobSucceeded || j.Attempt != 2 || j.World != n/2 {
		t.Errorf("%s after %d attempts with %d ranks (%s), want success with %d: %q", j.State, j.Attempt, j.World, j.Reason, n/2, lines)
	}
}

// checkpointScript saves a state in its first attempt and then waits; later ones print what they
// are given.
const checkpointScript = `
import os, sys, time
from outboard._ranks import Connection
folder = os.environ.get("OUTBOARD_CHECKPOINT")
if folder:
    print("state", open(folder + "/state.pt").read(), flush=True)
    sys.exit()
if os.environ["RANK"] == "0":
    fd = os.memfd_create("state")
    os.write(fd, b"of step 7")
    Connection(os.environ["OUTBOARD_RANKS_SOCKET"]).request("checkpoint", file=fd, number=7)
    print("saved", flush=True)
time.sleep(1000)
`

// When a node is lost the ranks start again from the last checkpoint, also with fewer of them.
func TestJobGoesOnFromItsCheckpoint(t *testing.T) {
	_, err := exec.LookPath("python3")
	need.Require(t, "python3", err == nil, "install python3")
	p := threeNodes(t, "trusted")
	n := deviceCount(t, p)
	spec := client.JobSpec{Ranks: n, MinRanks: n / 2, Args: []string{"python3", "-c", checkpointScript}}
	var once sync.Once
	var stopping sync.WaitGroup
	j, lines := submit(t, p.Node("harbour"), spec, func(l client.JobLine) {
		if l.Text == "saved" {
			once.Do(func() { stopping.Go(p.Node("east").Stop) }) // It has rank 0, and the chunks.
		}
	})
	stopping.Wait()
	if j.State != client.JobSucceeded || j.Checkpoint == nil || j.Checkpoint.Step != 7 {
		t.Fatalf("%s (%s), checkpoint %+v: %q", j.State, j.Reason, j.Checkpoint, lines)
	}
	if !slices.Contains(lines, "0 state of step 7") {
		t.Errorf("the ranks wrote %q, want the state that was saved", lines)
	}
}

// The end of a request that submits a job ends its ranks.
func TestJobEndsWithItsRequest(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}}, Jobs: "trusted"})
	node := p.Node("harbour")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := node.Client().SubmitJob(ctx, shell(1, "echo here; sleep 1000 & wait"), func(e client.JobEvent) error {
		if e.Line != nil && e.Line.Text == "here" {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want that the request was canceled", err)
	}
	jobs, err := node.Client().Jobs(t.Context())
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs (%v)", len(jobs), err)
	}
	if err := node.Client().JobLogs(t.Context(), jobs[0].ID, 0, true, func(client.JobEvent) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if j, err := node.Client().Job(t.Context(), jobs[0].ID); err != nil || j.State != client.JobCanceled {
		t.Errorf("%s (%v), want canceled", j.State, err)
	}
}

// sumScript sums 16384 numbers (float32) over all ranks, of two nodes, in one call.
const sumScript = `
import os, struct
from outboard._ranks import Connection, Memory
number = lambda name: int(os.environ[name])
rank, world, count = number("RANK"), number("WORLD_SIZE"), 16384
per = number("LOCAL_WORLD_SIZE")
group, memory = Connection(os.environ["OUTBOARD_RANKS_SOCKET"]), Memory()
group.request("join", group="sum", rank=rank, size=world, nodes=[r // per for r in range(world)])
memory.reserve(4 * count)
struct.pack_into("<%df" % count, memory.map, 0, *(i / 16 for i in range(count)))
group.request("call", file=memory.fd, operation=1, element=2, reduction=1, count=count, root=0, offset=0, site="", buffer=1)
print("sum", struct.unpack_from("<f", memory.map, 4 * 1000)[0], struct.unpack_from("<f", memory.map, 4 * (count - 1))[0], flush=True)
`

// Gradients travel between nodes as the job says, and what was sent is told.
func TestJobCompressesGradients(t *testing.T) {
	_, err := exec.LookPath("python3")
	need.Require(t, "python3", err == nil, "install python3")
	p := threeNodes(t, "trusted")
	n := deviceCount(t, p)
	for gradients, c := range map[string]struct{ sum, why string }{
		// Element 1000 is 62.5 in each rank, the last one 1023.9375; float16 has 11 bits.
		"":           {fmt.Sprint("0 sum ", 62.5*float64(n), " ", 1023.9375*float64(n)), "sent as they are"},
		"fp16":       {fmt.Sprint("0 sum ", 62.5*float64(n), " ", 1024*float64(n)), "1 sums of 64KiB were sent as 32KiB"},
		"topk=0.125": {fmt.Sprint("0 sum 0.0 ", 1023.9375*float64(n)), "1 sums of 64KiB were sent as 16KiB"},
		"loss=0.5":   {"", "1 sums of 64KiB: "},
		// The least important of the parts of at most 1,192 bytes may be lost: no network is perfect.
		"loss=0.001,datagrams": {fmt.Sprint("0 sum ", 62.5*float64(n), " ", 1023.9375*float64(n)), "1 sums of 64KiB: 0 of "},
	} {
		j, lines := submit(t, p.Node("harbour"), client.JobSpec{Ranks: n, Gradients: gradients, Args: []string{"python3", "-c", sumScript}}, nil)
		if j.State != client.JobSucceeded {
			t.Fatalf("%q: %s (%s): %q", gradients, j.State, j.Reason, lines)
		}
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(strings.ReplaceAll(l, ".0 ", " ")+" ", strings.ReplaceAll(c.sum, ".0 ", " "))
		}) {
			t.Errorf("%q: the ranks wrote %q, want %q", gradients, lines, c.sum)
		}
		if why := strings.Join(j.Why, "\n"); !strings.Contains(why, c.why) {
			t.Errorf("%q: want %q in\n%s", gradients, c.why, why)
		}
	}
	j, _ := submit(t, p.Node("harbour"), client.JobSpec{Ranks: n, Gradients: "store", Args: []string{"true"}}, nil)
	if j.State != client.JobFailed || !strings.Contains(j.Reason, "--objects") {
		t.Errorf("without a bucket: %s (%s), want what gives one", j.State, j.Reason)
	}
	if _, err := p.Node("harbour").Client().SubmitJob(t.Context(), client.JobSpec{Ranks: 1, Gradients: "tiny", Args: []string{"true"}}, func(client.JobEvent) error { return nil }); err == nil || !strings.Contains(err.Error(), "topk=FRACTION") {
		t.Errorf("%v, want what there is", err)
	}
}
