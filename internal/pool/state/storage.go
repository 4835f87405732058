package state

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

const (
	storagePause = 500 * time.Millisecond
	// storageProbe is the size of a file that must fit on the disk before the server is started
	// again.
	storageProbe = 4 << 20
	// maxRestartPause bounds the pause between restarts that do not help.
	maxRestartPause = 30 * time.Second
	// writeGrace is how long writes may go unanswered before Health reports it: elections
	// and restarts take that long.
	writeGrace = 3 * time.Second
)

// errStorage is the error that Health returns for the disk. It names no paths: it is shown to
// users.
var errStorage = errors.New("the disk of a node that keeps the pool's state is full or cannot be written: " +
	"free space on it, the node continues by itself")

// isStorageError reports whether a line of the server's log, by its format, is about a write
// that failed. The server answers such writes with silence: its log is the only notice.
func isStorageError(format string) bool {
	for _, part := range []string{"critical write error", "Critical write error", "failed to store a msg", "will be DISABLED", "no space left"} {
		if strings.Contains(format, part) {
			return true
		}
	}
	return false
}

// watchStorage restarts the embedded server after its writes have failed, as soon as the
// disk can be written again.
func (s *State) watchStorage(ctx context.Context) {
	pause, restarted := storagePause, time.Time{}
	for reported := false; sleep(ctx, storagePause) == nil; {
		e := s.server
		if !e.storageFailed() {
			if reported = false; time.Since(restarted) > maxRestartPause {
				pause = storagePause
			}
			continue
		}
		if !reported {
			s.log.Error("the pool's state cannot be written", "error", errStorage)
			reported = true
		}
		if time.Since(restarted) < pause || probeStorage(e.opts.Dir) != nil || !e.beginMoving() {
			continue
		}
		restarted, pause = time.Now(), min(2*pause, maxRestartPause)
		if err := s.restartServer(); err != nil {
			s.log.Warn("restart the pool's state: trying again", "error", err)
			continue
		}
		s.log.Info("the pool's state is written again")
	}
}

// restartServer starts the embedded server again, after beginMoving has returned true.
func (s *State) restartServer() error {
	s.server.stop()
	s.server.unwritable.Store(false)
	if err := s.server.start(); err != nil {
		s.server.unwritable.Store(true)
		s.server.setMoving(false)
		return err
	}
	return s.server.admitAll(s.nc)
}

// storageFailed reports whether the server has stopped writing.
func (e *embedded) storageFailed() bool {
	srv := e.current()
	return e.unwritable.Load() || srv != nil && !srv.JetStreamEnabled()
}

// beginMoving refuses clients from now on. It returns false if they are refused already: the server
// is being moved or restarted.
func (e *embedded) beginMoving() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.moving {
		return false
	}
	e.moving = true
	return true
}

// probeStorage writes a file beside the server's, and removes it.
func probeStorage(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, storageProbe))
	return errors.Join(err, f.Sync(), f.Close())
}

// writes is the outcome of the last writes of a client.
type writes struct {
	mu    sync.Mutex
	since time.Time // of the first failure after the last success; zero: none
}

func (w *writes) record(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, ErrConflict):
		w.since = time.Time{}
	case w.since.IsZero() && !errors.Is(err, context.Canceled):
		w.since = time.Now()
	}
}

func (w *writes) failing() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return 0
	}
	return time.Since(w.since)
}

// Health returns nil while the state accepts writes, otherwise the reason why it does not: an error
// of kind Exhausted if it is the disk, else of kind Unreachable.
func (s *State) Health() error {
	const op = "the pool's state"
	if s.server != nil && s.server.storageFailed() {
		return &outboard.Error{Op: op, Kind: outboard.Exhausted, Err: errStorage}
	}
	d := s.writes.failing()
	if d <= writeGrace {
		return nil
	}
	absent := ""
	if lost := unconnectedKeepers(s); len(lost) > 0 {
		absent = ", and these nodes, which keep it too, are not connected: " + strings.Join(lost, ", ")
	}
	return outboard.Errorf(outboard.Unreachable, op, "no write was acknowledged for %v%s", d.Round(time.Second), absent)
}

// unconnectedKeepers returns the names of the other nodes with a copy of the state to which this node,
// which has one, has no connection. Without a majority the table itself does not change: its records
// of these nodes remain.
func unconnectedKeepers(s *State) []string {
	if s.server == nil {
		return nil
	}
	srv := s.server.current()
	if srv == nil || s.server.role.get().Mode != voter {
		return nil
	}
	connected := routedServers(srv)
	return slices.DeleteFunc(Keepers(s), func(name string) bool { return name == srv.Name() || connected[name] })
}

// Growth reports the health of the pool's way to three copies of its state, as far as this node takes
// part in it.
type Growth struct{ State *State }

// Health returns why this node's last step towards three copies failed, nil if it did not.
func (c Growth) Health() error {
	if c.State.server == nil {
		return nil
	}
	if failure := c.State.server.growthFailure.Load(); failure != nil {
		return *failure
	}
	return nil
}
