package lend

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/arbiter"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/cgroup"
)

// turnTaker starts a process that does nothing and joins it to the sessions of a device.
func turnTaker(t *testing.T, s *spawner, turns *deviceTurns, id outboard.SessionID) *process {
	t.Helper()
	ours, theirs, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.start(command{args: []string{"/bin/sleep", "3600"}, dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		_ = p.wait() // it was killed
		_ = ours.Close()
		_ = theirs.Close()
	})
	turns.join(id, outboard.LeaseID(id), 1, &turnWorker{conn: ours, priority: priority{process: p, lease: &leasePriority{}}})
	return p
}

// grouped gives a session that has joined a control group, in a group of its lease.
func grouped(t *testing.T, tree *cgroup.Tree, turns *deviceTurns, id outboard.SessionID) {
	t.Helper()
	group, err := tree.Make("lease-"+string(id), cgroup.Limits{Weight: 100})
	if err != nil {
		t.Fatal(err)
	}
	session, err := group.Make("session", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p := &turns.workers[id].priority
	if p.lease.group, err = group.OpenIdle(); err != nil {
		t.Fatal(err)
	}
	if p.group, err = session.OpenIdle(); err != nil {
		t.Fatal(err)
	}
}

// Where control groups have an idle class, the work of sessions that wait for a turn is in it, and
// no worker is stopped.
func TestWaitingSessionsAreInTheBackground(t *testing.T) {
	tree := cgroup.Open("lendturnstest" + strconv.Itoa(os.Getpid()))
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	if !tree.CanIdle() {
		t.Skip("no control groups with an idle class: ", tree.Err())
	}
	s := newSpawner()
	t.Cleanup(s.close)
	turns := newTurns(outboard.CPU, tree)
	holder := func() outboard.SessionID { // of the turn, which is the only one in the foreground
		t.Helper()
		turns.mu.Lock()
		defer turns.mu.Unlock()
		a, b := turns.workers["a"], turns.workers["b"]
		if a.low == b.low || a.lease.group.On() != a.low || b.lease.group.On() != b.low || a.group.On() != a.low || b.group.On() != b.low {
			t.Fatalf("a is %+v in a lease %+v, b %+v in %+v", a.priority, a.lease, b.priority, b.lease)
		}
		if a.low {
			return "b"
		}
		return "a"
	}
	process := turnTaker(t, s, turns, "a")
	turnTaker(t, s, turns, "b")
	grouped(t, tree, turns, "a")
	grouped(t, tree, turns, "b")
	turns.handleMessage("a", control.Message{Type: control.TypeRequest})
	turns.handleMessage("b", control.Message{Type: control.TypeRequest})
	first := holder()
	for turns := 1; turns < 4; { // the deadlines of turns pass
		if next := holder(); next != first {
			first = next
			turns++
		}
	}
	state, err := os.ReadFile("/proc/" + strconv.Itoa(process.pid()) + "/stat")
	if err != nil || strings.Contains(string(state), ") T ") {
		t.Errorf("the worker is stopped: %s, %v", state, err)
	}
	turns.handleMessage("a", control.Message{Type: control.TypeEnd})
	turns.handleMessage("b", control.Message{Type: control.TypeEnd})
	turns.mu.Lock()
	defer turns.mu.Unlock()
	for id, w := range turns.workers {
		if w.low || w.group.On() || w.lease.group.On() {
			t.Errorf("%s is in the background although nobody has a turn", id)
		}
	}
}

// waitFor waits until the process has changed its state as options say.
func waitFor(t *testing.T, p *process, options int) {
	t.Helper()
	if err := unix.Waitid(unix.P_PID, p.pid(), nil, options, nil); err != nil {
		t.Fatal(err)
	}
}

// Where the device is the processor, a worker whose kernel runs past its turn is stopped while
// others have theirs, and continues with its next one.
func TestOverrunningWorkerIsSuspended(t *testing.T) {
	s := newSpawner()
	t.Cleanup(s.close)
	turns := newTurns(outboard.CPU, nil)
	long := turnTaker(t, s, turns, "long")
	turnTaker(t, s, turns, "short")
	request := control.Message{Type: control.TypeRequest}
	turns.handleMessage("long", request)
	turns.handleMessage("short", request)
	waitFor(t, long, unix.WSTOPPED)
	turns.handleMessage("short", control.Message{Type: control.TypeEnd})
	waitFor(t, long, unix.WCONTINUED)
	turns.handleMessage("short", request)
	waitFor(t, long, unix.WSTOPPED)
	turns.leave("short")
	waitFor(t, long, unix.WCONTINUED)
}

// A worker that is suspended when its session ends can end by itself.
func TestSuspendedWorkerEnds(t *testing.T) {
	s := newSpawner()
	t.Cleanup(s.close)
	turns := newTurns(outboard.CPU, nil)
	p := turnTaker(t, s, turns, "long")
	p.suspend()
	waitFor(t, p, unix.WSTOPPED)
	exited := make(chan error, 1)
	exited <- nil
	session := &Session{ID: "long", turns: turns, process: p, host: &Host{opts: Options{Grace: time.Minute}}}
	session.stopWorker(exited)
	waitFor(t, p, unix.WCONTINUED)
}

// A worker that does not run during many turns, since the machine is busy, keeps its connection: the
// grants that it has not read are few. After its next message it gets grants again.
func TestTurnsOfAWorkerThatDoesNotRun(t *testing.T) {
	ours, theirs, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	worker, err := control.FromFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	turns := newTurns(outboard.GPU, nil)
	w := &turnWorker{conn: ours, priority: priority{lease: &leasePriority{}}}
	turns.join("busy", "busy", 1, w)
	for turn := range 1000 {
		turns.execute(w, arbiter.Action{Session: "busy", Verb: arbiter.Grant, Quantum: time.Duration(turn + 1)})
	}
	for turn := range maxUnanswered {
		if m, err := worker.Receive(); err != nil || m.Type != control.TypeGrant || m.Quantum != time.Duration(turn+1) {
			t.Fatalf("turn %d: %+v, %v", turn, m, err)
		}
	}
	turns.handleMessage("busy", control.Message{Type: control.TypeRequest})
	if m, err := worker.Receive(); err != nil || m.Type != control.TypeGrant || m.Quantum < time.Microsecond {
		t.Errorf("after a request: %+v, %v", m, err)
	}
}
