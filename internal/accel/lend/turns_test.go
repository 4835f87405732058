package lend

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
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
	turns.join(id, outboard.LeaseID(id), 1, turnWorker{ours, p})
	return p
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
	turns := newTurns(outboard.CPU)
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
	turns := newTurns(outboard.CPU)
	p := turnTaker(t, s, turns, "long")
	p.suspend()
	waitFor(t, p, unix.WSTOPPED)
	exited := make(chan error, 1)
	exited <- nil
	session := &Session{ID: "long", turns: turns, process: p, host: &Host{opts: Options{Grace: time.Minute}}}
	session.stopWorker(exited)
	waitFor(t, p, unix.WCONTINUED)
}
