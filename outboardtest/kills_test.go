package outboardtest_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// killSteps is the number of steps of killScript: seven for each kill, and some after the last one.
const killSteps = 7*killedRanks + 5

// killScript sums numbers over two ranks in each step and saves its state every fifth. In the
// attempt i the rank and step that KILLS has at place i-1, "RANK:STEP", kills itself.
const killScript = `
import os, struct
from outboard._ranks import Connection, Memory
rank, attempt, socket = int(os.environ["RANK"]), int(os.environ["OUTBOARD_ATTEMPT"]), os.environ["OUTBOARD_RANKS_SOCKET"]
kills = os.environ.get("KILLS", "").split()
first, state = 0, 1
if "OUTBOARD_CHECKPOINT" in os.environ:
    first, state = map(int, open(os.environ["OUTBOARD_CHECKPOINT"] + "/state.pt").read().split())
group, memory = Connection(socket), Memory()
group.request("join", group="steps", rank=rank, size=2, nodes=[])
memory.reserve(8)
for step in range(first, int(os.environ["STEPS"])):
    struct.pack_into("<q", memory.map, 0, state * (rank + 2) % 1000003)
    group.request("call", file=memory.fd if step == first else None, operation=1, element=5, reduction=1, count=1, root=0, offset=0, site="")
    state = struct.unpack_from("<q", memory.map, 0)[0] % 1000003
    print("attempt", attempt, "step", step, flush=True)
    if rank == 0 and step % 5 == 4:
        fd = os.memfd_create("state")
        os.write(fd, f"{step + 1} {state}".encode())
        Connection(socket).request("checkpoint", file=fd, number=step + 1)
    if attempt <= len(kills) and kills[attempt - 1] == f"{rank}:{step}":
        os.kill(os.getpid(), 9)
print("result", state, flush=True)
`

// Ranks that are killed at random cost at most the steps since the last checkpoint, and the result
// is that of an undisturbed run.
func TestJobIsTheSameAfterKilledRanks(t *testing.T) {
	_, err := exec.LookPath("python3")
	need.Require(t, "python3", err == nil, "install python3")
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}}, Jobs: "trusted"})
	run := func(kills ...string) (client.Job, []string) {
		return submit(t, p.Node("harbour"), client.JobSpec{
			Ranks: 2, PerDevice: 2, Restarts: killedRanks, Args: []string{"python3", "-c", killScript},
			Env: map[string]string{"STEPS": strconv.Itoa(killSteps), "KILLS": strings.Join(kills, " ")},
		}, nil)
	}
	undisturbed, lines := run()
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "0 result") })
	if undisturbed.State != client.JobSucceeded || at < 0 {
		t.Fatalf("the undisturbed run: %s (%s): %q", undisturbed.State, undisturbed.Reason, lines)
	}
	want := lines[at]

	var kills []string
	var steps []int // in which the ranks are killed
	first := 0      // step that the next attempt makes in any case
	for range killedRanks {
		step := first + rand.IntN(7)
		kills, steps = append(kills, fmt.Sprintf("%d:%d", rand.IntN(2), step)), append(steps, step)
		first = (step + 1) / 5 * 5
	}
	j, lines := run(kills...)
	if j.State != client.JobSucceeded || j.Attempt != killedRanks+1 || !slices.Contains(lines, want) {
		t.Fatalf("%s after %d attempts (%s), want %q after kills at %q:\n%s", j.State, j.Attempt, j.Reason, want, kills, strings.Join(lines, "\n"))
	}
	for i, step := range steps {
		again := fmt.Sprintf("0 attempt %d step %d", i+2, step/5*5-1)
		if step >= 5 && slices.Contains(lines, again) {
			t.Errorf("killed at %q, the ranks repeated more than the steps since the checkpoint: %s", kills[i], again)
		}
	}
}
