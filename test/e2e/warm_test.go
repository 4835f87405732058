package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

// Compiling a kernel takes ten times as long as all else that a short session does. A test with many
// sessions of one program on one device therefore fills the program's cache first.

// fillCache runs a program from a node on harbour's device, so that a compile step fills its cache.
func fillCache(t testing.TB, r *rig.Rig, node string, program ...string) {
	t.Helper()
	p := suite.Program{Args: program, Limit: patience}
	if res := p.Run(t.Context(), through(r, node, "--memory", "64MiB"), ""); res.Err != nil {
		t.Fatalf("%v from %s: %v\n%s%s", program, node, res.Err, res.Stdout, res.Stderr)
	}
}

// fillCacheOfHold is fillCache for testdata/hold.c, which ends when it is killed.
func fillCacheOfHold(t testing.TB, r *rig.Rig, node string) {
	t.Helper()
	h := startBlocked(t, through(r, node, "--memory", "16MiB"), "stream")
	_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
	_ = h.cmd.Wait() // killed
}

// waitForCompileSteps waits until no session of the node lives and no compile step waits or runs. The
// steps give way to everything else: on a machine that is too busy for them the test goes on without,
// and takes longer.
func waitForCompileSteps(t testing.TB, n *rig.Node) {
	t.Helper()
	idle := func() bool {
		return len(list(t, n, "sessions")) == 0 && strings.Contains(getPage(t, n, "/metrics"), "\noutboard_accel_compile_steps 0\n")
	}
	for limit := time.Now().Add(patience); !idle(); pause(t.Context(), 50*time.Millisecond) {
		if time.Now().After(limit) {
			t.Logf("compile steps of %s still run after %v", n.Name, patience)
			return
		}
	}
}
