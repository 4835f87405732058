package outboardtest_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// attemptSteps bounds the steps of an attempt that ends by a kill; killedNodes attempts do.
const (
	attemptSteps   = 12
	nodeKillsSteps = attemptSteps*killedNodes + 5
)

// nodeKillsScript sums 60 numbers over all ranks in each step, so that the sum does not depend on
// their number, and saves its state every fifth step. Attempts that end by a kill wait after
// attemptSteps. PER ranks of each node follow each other.
const nodeKillsScript = `
import os, struct, time
from outboard._ranks import Connection, Memory
number = lambda name: int(os.environ[name])
rank, world, attempt, socket = number("RANK"), number("WORLD_SIZE"), number("OUTBOARD_ATTEMPT"), os.environ["OUTBOARD_RANKS_SOCKET"]
first, state = 0, 1
if "OUTBOARD_CHECKPOINT" in os.environ:
    first, state = map(int, open(os.environ["OUTBOARD_CHECKPOINT"] + "/state.pt").read().split())
group, memory = Connection(socket), Memory()
nodes = [r // number("PER") for r in range(world)] if number("OUTBOARD_NODES") > 1 else []
group.request("join", group="steps", rank=rank, size=world, nodes=nodes)
memory.reserve(8)
for step in range(first, number("STEPS")):
    if attempt <= number("KILLS") and step == first + number("LIMIT") and rank == 0:
        time.sleep(1000)
    struct.pack_into("<q", memory.map, 0, sum(state * (i + 2) % 1000003 for i in range(rank, 60, world)))
    group.request("call", file=memory.fd if step == first else None, operation=1, element=5, reduction=1, count=1, root=0, offset=0, site="")
    state = struct.unpack_from("<q", memory.map, 0)[0] % 1000003
    if rank == 0:
        print("attempt", attempt, "step", step, flush=True)
    if rank == 0 and step % 5 == 4:
        fd = os.memfd_create("state")
        os.write(fd, f"{step + 1} {state}".encode())
        Connection(socket).request("checkpoint", file=fd, number=step + 1)
        print("saved", attempt, step + 1, flush=True)
print("result", state, flush=True)
`

// A nodeKiller kills nodes with ranks while a job runs, and starts them again.
type nodeKiller struct {
	t    *testing.T
	pool *outboardtest.Pool
	// from is the job's node, which lives.
	from outboard.NodeID

	working sync.WaitGroup
	attempt int // that is to be killed next
	at      int // its lines of steps until then
	killed  time.Time
	told    time.Duration // the longest time until the other nodes were told
	resumed time.Duration // and until ranks run again
	saved   int           // the last checkpoint that counts
	restart outboard.NodeID
}

// line takes in a line of the job.
func (k *nodeKiller) line(l client.JobLine) {
	var attempt, step int
	if _, err := fmt.Sscanf(l.Text, "attempt %d step %d", &attempt, &step); err == nil {
		k.step(attempt, step)
	}
	if _, err := fmt.Sscanf(l.Text, "saved %d %d", &attempt, &step); err == nil {
		k.saved = step
	}
	if l.Rank < 0 && strings.Contains(l.Text, "is lost") && !k.killed.IsZero() {
		k.told = max(k.told, time.Since(k.killed))
	}
}

func (k *nodeKiller) step(attempt, step int) {
	if attempt == k.attempt && !k.killed.IsZero() {
		k.resumed = max(k.resumed, time.Since(k.killed))
		k.killed, k.at = time.Time{}, rand.IntN(attemptSteps)
		// A checkpoint may count whose line the kill has cut off.
		if step < k.saved {
			k.t.Errorf("attempt %d begins with step %d: the last checkpoint is that of step %d", attempt, step, k.saved)
		}
		k.startAgain()
	}
	if attempt != k.attempt || attempt > killedNodes || !k.killed.IsZero() {
		return
	}
	if k.at--; k.at < 0 {
		k.kill()
	}
}

// kill kills a node that has ranks of the job.
func (k *nodeKiller) kill() {
	k.working.Wait() // The node that was killed before is back.
	jobs, err := k.pool.Node(k.from).Client().Jobs(k.t.Context())
	if err != nil || len(jobs) == 0 || len(jobs[0].Ranks) == 0 {
		k.t.Errorf("the job has no ranks (%v)", err)
		return
	}
	j, err := k.pool.Node(k.from).Client().Job(k.t.Context(), jobs[0].ID)
	if err != nil {
		k.t.Error(err)
		return
	}
	k.restart = j.Ranks[rand.IntN(len(j.Ranks))].Node
	k.killed, k.attempt = time.Now(), k.attempt+1
	k.pool.Node(k.restart).Kill()
}

// startAgain starts the killed node again while the job goes on.
func (k *nodeKiller) startAgain() {
	name := k.restart
	k.working.Go(func() { k.pool.Node(name).Start() })
}

// Nodes that are killed at random cost at most the steps since the last checkpoint: the job goes on
// with fewer ranks, and the result is that of an undisturbed run.
func TestJobIsTheSameAfterKilledNodes(t *testing.T) {
	_, err := exec.LookPath("python3")
	need.Require(t, "python3", err == nil, "install python3")
	p := outboardtest.Start(t, outboardtest.Options{
		Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true}, {Name: "east", Process: true}, {Name: "west", Process: true}, {Name: "south", Process: true}},
		Jobs:  "trusted",
	})
	per := deviceCount(t, p) / 3
	run := func(kills int, onLine func(client.JobLine)) (client.Job, string) {
		t.Helper()
		j, lines := submit(t, p.Node("harbour"), client.JobSpec{
			Ranks: 3 * per, MinRanks: 2 * per, Restarts: killedNodes, Args: []string{"python3", "-c", nodeKillsScript},
			Env: map[string]string{
				"PER": strconv.Itoa(per), "STEPS": strconv.Itoa(nodeKillsSteps), "KILLS": strconv.Itoa(kills), "LIMIT": strconv.Itoa(attemptSteps),
			},
		}, onLine)
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "0 result") })
		if j.State != client.JobSucceeded || at < 0 {
			t.Fatalf("%s after %d attempts (%s):\n%s", j.State, j.Attempt, j.Reason, strings.Join(lines, "\n"))
		}
		return j, lines[at]
	}
	_, want := run(0, nil)
	k := &nodeKiller{t: t, pool: p, from: "harbour", attempt: 1, at: rand.IntN(attemptSteps)}
	j, got := run(killedNodes, k.line)
	k.working.Wait()
	if got != want || j.Attempt != killedNodes+1 {
		t.Errorf("%q after %d attempts, want %q after %d", got, j.Attempt, want, killedNodes+1)
	}
	t.Logf("%d nodes killed: at most %v until the others were told, %v until ranks ran again", killedNodes, k.told, k.resumed)
}
