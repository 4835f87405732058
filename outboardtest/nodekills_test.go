package outboardtest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
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

// nodeKillsScript sums numbers over all ranks in each step, and is killed in the bench of training, too.
const nodeKillsScript = "../bench/train/scripts/kills.py"

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
	if _, err := fmt.Sscanf(l.Text, "step %d %d", &attempt, &step); err == nil {
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
	script, err := os.ReadFile(nodeKillsScript)
	if err != nil {
		t.Fatal(err)
	}
	per := deviceCount(t, p) / 3
	run := func(kills int, onLine func(client.JobLine)) (client.Job, string) {
		t.Helper()
		j, lines := submit(t, p.Node("harbour"), client.JobSpec{
			Ranks: 3 * per, MinRanks: 2 * per, Restarts: killedNodes, Args: []string{"python3", "-c", string(script)},
			Env: map[string]string{
				"PER": strconv.Itoa(per), "STEPS": strconv.Itoa(nodeKillsSteps), "KILLS": strconv.Itoa(kills), "LIMIT": strconv.Itoa(attemptSteps),
			},
		}, onLine)
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "0 result") })
		if j.State != client.JobSucceeded || at < 0 {
			t.Fatalf("%s after %d attempts (%s):\n%s", j.State, j.Attempt, j.Reason, strings.Join(lines, "\n"))
		}
		_, result, _ := strings.Cut(lines[at], "result "+strconv.Itoa(j.Attempt))
		return j, result
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
