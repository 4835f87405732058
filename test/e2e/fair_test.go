package e2e

import (
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

// counter is a running testdata/launches.c.
type counter struct {
	*runningProgram
	input io.WriteCloser
}

// count starts a program that launches kernels without a pause, over a way whose
// flags give it its share.
func count(t *testing.T, way suite.Launcher, args ...string) *counter {
	t.Helper()
	c := &counter{}
	c.runningProgram = launchWith(t, way, func(cmd *exec.Cmd) {
		var err error
		if c.input, err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}, compiled(t, "launches"), args...)
	c.waitForHolding(t)
	return c
}

// A throughput is how many kernels of a program ended in how many seconds. All kernels are of the
// same length.
type throughput struct{ launches, seconds float64 }

func (t throughput) perSecond() float64 { return t.launches / t.seconds }

// countLaunches tells all to count, and adds what they counted to sums. The programs count for their
// own times: on a busy machine one waits for its last kernels long after another one.
func countLaunches(t *testing.T, sums []throughput, all ...*counter) {
	t.Helper()
	for _, c := range all {
		if _, err := io.WriteString(c.input, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range all {
		text := make(chan string, 1)
		go func() { text <- c.line() }()
		select {
		case l := <-text:
			var got throughput
			if _, err := fmt.Sscanf(l, "launches %g in %g", &got.launches, &got.seconds); err != nil {
				t.Fatalf("the program said %q\n%s", l, c.stderr)
			}
			sums[i].launches += got.launches
			sums[i].seconds += got.seconds
		case <-time.After(patience):
			t.Fatal("the program did not end")
		}
	}
}

func (c *counter) end(t *testing.T) {
	t.Helper()
	_ = c.input.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, c.stderr)
	}
}

// fairRounds is how often a share may be looked at until it is right: a round is enough
// but where the machine has much else to do.
const fairRounds = 15

// roundSeconds is how long a round takes: a hundred launches of each program. It occupies the
// processors.
const roundSeconds = "1"

// turns is how much work each launch of testdata/launches.c is: about five milliseconds of one core,
// much more than what a launch costs the program, its node and the network, which a busy machine
// divides by other weights.
const turns = "40000"

// Two programs on one device share its time by their weights, over shared memory and over the
// network. The bounds are wide, since a busy machine makes turns of one program longer than those of
// another; what matters is that weights count. Package arbiter's tests hold the shares to a few per
// cent.
func TestFairSharing(t *testing.T) {
	sharesDevice(t)
	sharesAre(t, shared(t), "harbour", "3", 1.3, 6)
}

// The same with both programs on another node, and with equal weights.
func TestFairSharingOverTheNetwork(t *testing.T) {
	sharesDevice(t)
	t.Run("three to one", func(t *testing.T) { sharesAre(t, shared(t), "dinghy", "3", 1.3, 6) })
	t.Run("equal, one beside the device", func(t *testing.T) { sharesAre(t, shared(t), "harbour", "1", 0.5, 2) })
}

// Where there are no control groups, and workers are stopped between their turns, weights count as
// well: also while other programs have the machine's processors, and a worker that has the turn
// does not run.
func TestFairSharingOfStoppedWorkers(t *testing.T) {
	beside(t)
	nodes := withoutCache(pair())
	for i := range nodes {
		nodes[i].NoGroups = true
	}
	sharesAre(t, own(t, rig.Options{Nodes: nodes}), "harbour", "3", 1.3, 6)
}

// sharesAre runs two programs, the first one on a node and with a weight, and checks in which ratio
// their kernels ended.
func sharesAre(t *testing.T, r *rig.Rig, node, weight string, least, most float64) {
	t.Helper()
	a := count(t, through(r, node, "--memory", "64MiB", "--weight", weight), roundSeconds, turns)
	b := count(t, through(r, "dinghy", "--memory", "64MiB", "--weight", "1"), roundSeconds, turns)
	sums, ratio := make([]throughput, 2), 0.0
	// A program that has not launched anything in a round makes the ratio no number.
	fair := func() bool { return ratio >= least && ratio <= most }
	for round := 0; round < fairRounds && !fair(); round++ {
		countLaunches(t, sums, a, b)
		ratio = sums[0].perSecond() / sums[1].perSecond()
	}
	if !fair() {
		t.Errorf("launches and seconds %v: ratio %.2f, want %.1f to %.1f", sums, ratio, least, most)
	}
	a.end(t)
	b.end(t)
}
