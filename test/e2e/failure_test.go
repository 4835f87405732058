package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// runningProgram is a running `hold`, or another program that prints its progress line by line.
type runningProgram struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr *syncBuffer
}

// syncBuffer is a buffer that may be read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *syncBuffer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *syncBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// stderrText returns what the program and outboard run have written to standard error so far.
func (h *runningProgram) stderrText() string { return h.stderr.String() }

// startBlocked starts the program and waits until it prints that its blocking call has begun.
func startBlocked(t testing.TB, way suite.Launcher, mode ...string) *runningProgram {
	t.Helper()
	h := startHold(t, way, mode...)
	h.waitForHolding(t)
	return h
}

func startHold(t testing.TB, way suite.Launcher, mode ...string) *runningProgram {
	t.Helper()
	return launch(t, way, compiled(t, "hold"), mode...)
}

// launch starts a program that ends with the test.
func launch(t testing.TB, way suite.Launcher, path string, args ...string) *runningProgram {
	t.Helper()
	return launchWith(t, way, func(*exec.Cmd) {}, path, args...)
}

// launchWith does so with a command that prepare has changed.
func launchWith(t testing.TB, way suite.Launcher, prepare func(*exec.Cmd), path string, args ...string) *runningProgram {
	t.Helper()
	cmd := way(context.Background(), path, args...)
	prepare(cmd)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	h := &runningProgram{cmd: cmd, stderr: &syncBuffer{}}
	cmd.Stderr = h.stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.lines = bufio.NewScanner(stdout)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return h
}

// waitForHolding waits for the line that the program prints before its blocking call.
func (h *runningProgram) waitForHolding(t testing.TB) {
	t.Helper()
	if got := h.line(); got != "holding" {
		_ = h.cmd.Wait()
		t.Fatalf("%v said %q\n%s", h.cmd.Args, got, h.stderr)
	}
}

func (h *runningProgram) line() string {
	if h.lines.Scan() {
		return h.lines.Text()
	}
	return ""
}

// waitForEnd waits for the line that says how the call ended.
func (h *runningProgram) waitForEnd(t testing.TB) (code int, seconds float64) {
	t.Helper()
	text := make(chan string, 1)
	go func() { text <- h.line() }()
	select {
	case l := <-text:
		if _, err := fmt.Sscanf(l, "ended %d %f", &code, &seconds); err != nil {
			t.Fatalf("hold said %q\n%s", l, h.stderr)
		}
	case <-time.After(patience):
		t.Fatalf("the call did not return within %v", patience)
	}
	return code, seconds
}

const deviceNotAvailable = -2

// sessionLost is the exit status of `outboard run` when the session went before the program.
func sessionLost(t testing.TB, h *runningProgram) {
	t.Helper()
	err := h.cmd.Wait()
	if !strings.Contains(h.stderr.String(), "session") {
		t.Errorf("outboard run did not say what happened: %q (%v)", h.stderr, err)
	}
	if lines := strings.Count(strings.TrimSpace(h.stderr.String()), "\n"); lines > 1 {
		t.Errorf("outboard run said more than a line or two:\n%s", h.stderr)
	}
	if got, want := h.cmd.ProcessState.ExitCode(), exitSessionLost; got != want {
		t.Errorf("exit status %d, want %d", got, want)
	}
}

// exitSessionLost is 10 plus the kind's number less one, as `outboard help exit-status` says.
const exitSessionLost = 17

func TestDeviceNodeDies(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: withoutCache(pair())})
	all := map[string]*runningProgram{}
	for _, mode := range []string{"finish", "read", "stream"} {
		all[mode] = startBlocked(t, through(r, "dinghy", "--memory", "64MiB"), mode)
	}
	if err := r.Node("harbour").Kill(); err != nil {
		t.Fatal(err)
	}
	for mode, h := range all {
		t.Run(mode, func(t *testing.T) {
			if code, _ := h.waitForEnd(t); code != deviceNotAvailable {
				t.Errorf("the call gave %d, want CL_DEVICE_NOT_AVAILABLE", code)
			}
			sessionLost(t, h)
		})
	}
}

// The session ends although the removed node goes on to run it: a program would otherwise send it
// more of its data.
func TestDeviceNodeRemoved(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: withoutCache([]rig.Spec{{Name: "dinghy", Devices: "none"}, {Name: "harbour"}})})
	h := startBlocked(t, through(r, "dinghy", "--memory", "64MiB"), "read")
	if out, err := r.Node("dinghy").Output(t.Context(), "nodes", "remove", "harbour"); err != nil {
		t.Fatalf("remove: %v: %s", err, out)
	}
	if code, _ := h.waitForEnd(t); code != deviceNotAvailable {
		t.Errorf("the call gave %d, want CL_DEVICE_NOT_AVAILABLE", code)
	}
	sessionLost(t, h)
	if leases := list(t, r.Node("dinghy"), "leases"); len(leases) > 0 {
		t.Errorf("leases of the removed node's device: %v", leases)
	}
}

func TestLinkCut(t *testing.T) {
	beside(t)
	need.Root(t)
	r := own(t, rig.Options{Nodes: withoutCache(pair())})
	var all []*runningProgram
	for range 5 {
		all = append(all, startBlocked(t, through(r, "dinghy", "--memory", "64MiB"), "read"))
	}
	if err := r.Node("dinghy").Cut(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if code, seconds := h.waitForEnd(t); code != deviceNotAvailable {
			t.Errorf("the call gave %d after %.1f s", code, seconds)
		}
	}
	// The device's node frees what the lost programs held.
	eventually(t, "no session is left on harbour", func() bool { return len(list(t, r.Node("harbour"), "sessions")) == 0 })
	if err := r.Node("dinghy").Cut(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "dinghy leases again", func() bool {
		p := suite.Program{Args: []string{"clinfo", "-l"}}
		return p.Run(t.Context(), through(r, "dinghy"), "").Err == nil
	})
}

func TestWorkerCrashEndsOneSession(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: withoutCache(pair())})
	bystander := startBlocked(t, through(r, "dinghy", "--memory", "64MiB"), "read")
	victim := startBlocked(t, through(r, "dinghy", "--memory", "64MiB"), "crash")
	if code, seconds := victim.waitForEnd(t); code >= 0 {
		t.Errorf("a crashed kernel gave %d after %.1f s", code, seconds)
	}
	sessionLost(t, victim)
	if err := syscall.Kill(bystander.cmd.Process.Pid, 0); err != nil {
		t.Errorf("the other session's program is gone: %v", err)
	}
	// The program learns of the loss before the node has removed what the session has left.
	eventually(t, "the bystander's session is the only one on harbour", func() bool {
		return len(list(t, r.Node("harbour"), "sessions")) == 1
	})
}

func TestKilledProgramLeavesNothing(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: pair()})
	harbour := r.Node("harbour")
	before := len(descendants(harbour.PID()))
	for name, victim := range map[string]func(h *runningProgram) int{
		"program":      func(h *runningProgram) int { return descendants(h.cmd.Process.Pid)[0] },
		"outboard run": func(h *runningProgram) int { return h.cmd.Process.Pid },
	} {
		t.Run(name, func(t *testing.T) {
			h := startBlocked(t, through(r, "dinghy"), "stream")
			if err := syscall.Kill(victim(h), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "workers, sessions and leases are gone", func() bool {
				return len(descendants(harbour.PID())) == before && len(list(t, harbour, "sessions")) == 0 && len(list(t, harbour, "leases")) == 0
			})
			_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
			_ = h.cmd.Wait()
		})
	}
	eventually(t, "no file is left behind", func() bool { // a compile step may still run
		left, err := filepath.Glob(filepath.Join(harbour.Data(), "tmp", "*"))
		return err == nil && len(left) == 0
	})
}

func TestMemoryLimit(t *testing.T) {
	sharesDevice(t)
	const memObjectAllocationFailure = -4
	for name, node := range map[string]string{"shared memory": "harbour", "network": "dinghy"} {
		t.Run(name, func(t *testing.T) {
			h := startHold(t, through(shared(t), node, "--memory", "32MiB"), "alloc", "100")
			var count int
			if _, err := fmt.Sscanf(h.line(), "allocated %d", &count); err != nil || count < 28 || count > 32 {
				t.Errorf("allocated %d MiB of a lease of 32 (%v)", count, err)
			}
			if code, _ := h.waitForEnd(t); code != memObjectAllocationFailure {
				t.Errorf("too much memory gave %d, want CL_MEM_OBJECT_ALLOCATION_FAILURE", code)
			}
			_ = h.cmd.Wait()
		})
	}
}

// copies counts the nodes that keep a copy of the pool's state.
func copies(r *rig.Rig, nodes ...string) (count int) {
	for _, name := range nodes {
		raw, err := os.ReadFile(filepath.Join(r.Node(name).Data(), "pool", "state", "role.json"))
		var role struct {
			Mode  string
			Ready bool
		}
		if err == nil && json.Unmarshal(raw, &role) == nil && role.Mode == "voter" && role.Ready {
			count++
		}
	}
	return count
}

// The third node makes the state survive the first.
func TestFirstOfThreeNodesDies(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: withoutCache([]rig.Spec{{Name: "one", Devices: "none"}, {Name: "two"}, {Name: "three", Devices: "none"}})})
	eventually(t, "the state has three copies", func() bool { return copies(r, "one", "two", "three") == 3 })
	running := startBlocked(t, through(r, "three", "--memory", "64MiB"), "read")
	if err := r.Node("one").Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others lease and place", func() bool {
		p := suite.Program{Args: []string{"clinfo", "-l"}, Limit: patience}
		res := p.Run(t.Context(), through(r, "three", "--memory", "64MiB"), "")
		return res.Err == nil && strings.Contains(res.Stdout, "Device #0")
	})
	if err := syscall.Kill(running.cmd.Process.Pid, 0); err != nil {
		t.Errorf("the running session noticed: %v\n%s", err, running.stderr)
	}
}

// Commands without a waiter fail with their user event, and the worker survives.
func TestUnseenFailures(t *testing.T) {
	sharesDevice(t)
	for name, way := range paths(shared(t)) {
		p := suite.Program{Args: []string{compiled(t, "unseen")}, Limit: patience}
		if res := p.Run(t.Context(), way, ""); res.Err != nil || res.Stdout != "ok\n" {
			t.Errorf("over %s: %v, %q\n%s", name, res.Err, res.Stdout, res.Stderr)
		}
	}
}
