package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

// exitBusy is the exit status when all devices that fit are leased.
const exitBusy = 13

// refused runs a program that cannot have the device, and returns what was said.
func refused(t *testing.T, way suite.Launcher, status int) string {
	t.Helper()
	p := suite.Program{Args: []string{"true"}, Limit: patience}
	res := p.Run(t.Context(), way, "")
	if got := res.ExitStatus(); got != status {
		t.Errorf("exit status %d (%v), want %d: %s", got, res.Err, status, res.Stderr)
	}
	return res.Stderr
}

// The device is leased as a whole: a program that does not wait, or waits for a while, gets an error
// that names the holder; one that waits gets it in order, also when its holder was killed.
func TestWaitingForADevice(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: pair()})
	holder := startBlocked(t, through(r, "harbour"), "read")
	for name, flags := range map[string][]string{"at once": {"--no-wait"}, "after a while": {"--timeout", "1s"}} {
		t.Run(name, func(t *testing.T) {
			said := refused(t, through(r, "dinghy", flags...), exitBusy)
			for _, want := range []string{"harbour/opencl/0", "hold"} {
				if !strings.Contains(said, want) {
					t.Errorf("it said %q, want it to name %q", said, want)
				}
			}
		})
	}
	var waiting []*runningProgram
	for i, node := range []string{"dinghy", "harbour", "dinghy"} {
		waiting = append(waiting, startHold(t, through(r, node, "--timeout", "0"), "read"))
		eventually(t, "it waits in the queue", func() bool { return strings.Contains(waiting[i].stderrText(), "place") })
	}
	for _, next := range waiting {
		if err := syscall.Kill(-holder.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = holder.cmd.Wait() // killed
		next.waitForHolding(t)
		eventually(t, "the killed one's session is gone", func() bool { return len(list(t, r.Node("harbour"), "sessions")) == 1 })
		holder = next
	}
}

// A waiting program that is killed leaves the queue.
func TestKilledInTheQueue(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: pair()})
	holder := startBlocked(t, through(r, "harbour"), "read")
	first := startHold(t, through(r, "dinghy", "--timeout", "0"), "read")
	eventually(t, "it waits", func() bool { return strings.Contains(first.stderrText(), "place 1") })
	second := startHold(t, through(r, "harbour", "--timeout", "0"), "read")
	eventually(t, "it waits behind", func() bool { return strings.Contains(second.stderrText(), "place 2") })
	for _, h := range []*runningProgram{first, holder} {
		if err := syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = h.cmd.Wait() // killed
	}
	second.waitForHolding(t)
}
