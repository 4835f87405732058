package lend

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/rmtree"
	"github.com/outboard-run/outboard/internal/shm"
)

// Spec describes a session to start.
type Spec struct {
	Lease  outboard.Lease
	Device outboard.Device
	// Index is the device's index in the result of the node's probe.
	Index int
	// Via is the transport of the program's data, "shm" or "tcp".
	Via string
}

// Session is one worker and its ring.
type Session struct {
	Spec
	ID      outboard.SessionID
	Started time.Time

	host    *Host
	turns   *deviceTurns
	lease   *leaseState
	ring    *shm.Ring
	cache   cacheUse
	recipes *os.File // nil: no compile step follows
	process *process
	control *control.Conn
	done    chan struct{}
	ending  chan struct{}

	mu    sync.Mutex
	ended bool
	err   error // why the session ended; nil for a clean end
	stats *control.Stats
	final *control.Message
	diagnostics
}

// Start starts a worker. The caller must call Close on the session.
func (h *Host) Start(spec Spec) (*Session, error) {
	if err := h.Refused(); err != nil {
		return nil, err
	}
	turns, lease, err := h.reserveSession(&spec)
	if err != nil {
		return nil, err
	}
	s := &Session{
		Spec: spec, ID: newID(), Started: time.Now(), host: h, turns: turns, lease: lease,
		done: make(chan struct{}), ending: make(chan struct{}),
	}
	if err := s.start(); err != nil {
		_ = rmtree.Remove(s.tmp())
		h.removeUnstarted(s)
		return nil, outboard.Errorf(outboard.SessionLost, "start a worker", "%w", err)
	}
	h.metrics.started.Inc()
	h.opts.Log.Debug("session started", "session", s.ID, "lease", spec.Lease.Lease, "holder", spec.Lease.Holder,
		"device", spec.Device.ID, "via", spec.Via, "worker", s.process.pid())
	h.addSession(s)
	go s.supervise()
	return s, nil
}

func newID() outboard.SessionID {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return outboard.SessionID(hex.EncodeToString(id))
}

func (s *Session) tmp() string { return filepath.Join(s.host.tmp(), string(s.ID)) }

func (s *Session) start() (err error) {
	if err := os.MkdirAll(s.tmp(), 0o700); err != nil {
		return err
	}
	if s.cache, err = s.host.caches.acquire(s.Lease); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.host.caches.release(s.cache)
		}
	}()
	if s.ring, err = shm.Create(s.host.opts.Area); err != nil {
		return err
	}
	ours, theirs, err := control.Pair()
	if err != nil {
		s.ring.Unmap()
		return err
	}
	defer theirs.Close()
	s.control = ours
	files := []*os.File{s.ring.File(), theirs}
	if s.recipes = s.host.newRecipes(); s.recipes != nil {
		files = append(files, s.recipes)
	}
	group, err := s.makeGroup()
	if err == nil {
		s.process, err = s.host.startProcess(s.tmp(), group, files...)
	}
	if err == nil {
		// The driver writes messages for its users to standard error, such as warnings of its
		// compiler.
		s.process.reportLines(func(line string) { s.reportStderr(line) })
		err = s.configure()
	} else {
		_ = group.Remove()
	}
	if err != nil {
		s.abortStart()
		return err
	}
	s.turns.join(s.ID, accountOf(&s.Lease), s.weight(), &turnWorker{conn: s.control, priority: s.newPriority()})
	return nil
}

// abortStart reverses the completed part of start.
func (s *Session) abortStart() {
	if s.process != nil {
		s.process.kill()
		_ = s.process.wait()
		_ = s.process.group.Remove()
	}
	_ = s.control.Close()
	_ = s.recipes.Close() // a nil file is no error
	s.ring.Unmap()
}

// configure sends the worker its configuration.
func (s *Session) configure() error {
	config, err := s.host.sandboxConfig(s.tmp(), s.cache.uid)
	if err != nil {
		return err
	}
	return s.control.Send(control.Message{Type: control.TypeConfig, Config: &control.Config{
		Sandbox: config, Require: s.host.opts.Sandbox.Require, Quota: s.lease.join(s.ID, s.control),
		Session: s.ID, Memory: s.Lease.Memory, Weight: s.weight(), Cgroup: s.process.group != nil,
		API: s.Device.API, Device: s.Index, DeviceName: s.Device.Name,
		Owner: string(s.Lease.Holder), CacheDir: s.cache.dir, TmpDir: s.tmp(),
		CacheSize: s.host.opts.Sandbox.Cache, Recipes: s.recipes != nil,
	}})
}

// Ring returns the client's end of the session's ring. It is mapped until Close.
func (s *Session) Ring() *shm.Ring { return s.ring }

// Worker returns the process id of the worker.
func (s *Session) Worker() int { return s.process.pid() }

// Stats returns the worker's last report, nil before the first.
func (s *Session) Stats() *control.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// End begins the session's end: its program gets err, and the worker has a short grace period to
// exit. A nil err is a clean end. Later calls have no effect.
func (s *Session) End(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended, s.err = true, err
	_ = s.ring.Fail(err)
	close(s.ending)
}

// Ending returns a channel that is closed when the session's end begins; Err then returns the
// reason.
func (s *Session) Ending() <-chan struct{} { return s.ending }

// Done returns a channel that is closed when the worker and all its descendants have ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session ended; nil while it is live and after a clean end.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session, waits for its worker and unmaps its ring, which must not be in use any
// more.
func (s *Session) Close() error {
	s.End(nil)
	<-s.done
	s.ring.Unmap()
	return s.Err()
}

// supervise owns the worker from its start to its end.
func (s *Session) supervise() {
	defer close(s.done)
	controlDone := make(chan struct{})
	go func() {
		defer close(controlDone)
		s.readControl()
	}()
	exited := make(chan error, 1)
	go func() { exited <- s.process.wait() }()
	select {
	case err := <-exited:
		// Its last messages may still be in the socket. No process of its group is alive, so the
		// end of file is in the socket too.
		waitTimeout(controlDone, time.Second)
		s.End(s.exitError(err))
	case <-s.ending:
		s.stopWorker(exited)
	}
	_ = s.control.Close()
	<-controlDone
	s.removeGroup()
	_ = rmtree.Remove(s.tmp())
	s.host.compiles.enqueue(s)
	s.host.caches.release(s.cache)
	s.host.removeSession(s)
	s.recordEnd()
}

// removeGroup removes the session's control group, and kills the processes in it.
func (s *Session) removeGroup() {
	if err := s.process.group.Remove(); err != nil {
		s.host.opts.Log.Error("a session's processes are left", "session", s.ID, "error", err)
	}
}

func waitTimeout(done <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// stopWorker lets the worker end by itself during the grace period and then kills it.
func (s *Session) stopWorker(exited <-chan error) {
	s.turns.leave(s.ID) // this also ends a suspension
	s.process.resume()
	grace := time.NewTimer(s.host.opts.Grace)
	defer grace.Stop()
	select {
	case <-exited:
		return
	case <-grace.C:
	}
	s.process.kill()
	<-exited
}

// exitError returns the session's error for a worker that exited.
func (s *Session) exitError(exit error) error {
	const op = "session"
	s.mu.Lock()
	final := s.final
	s.mu.Unlock()
	if final != nil && (final.Reason != "" || exit == nil) {
		if final.Reason == "" {
			return nil
		}
		kind := final.Kind
		if kind == outboard.Other {
			kind = outboard.SessionLost
		}
		return outboard.Errorf(kind, op, "the worker on %s ended: %s", s.Device.ID, final.Reason)
	}
	if s.process.outOfMemory() {
		return outboard.Errorf(outboard.Exhausted, op, "the worker on %s used more than %v of the machine's memory, which is its limit: "+
			"set another one by `outboard up --sandbox memory=SIZE`", s.Device.ID, outboard.Bytes(groupMemory(&s.Spec, s.host.opts.Sandbox.Memory)))
	}
	how := "it exited without a reason"
	if exit != nil {
		how = exit.Error()
	}
	if words := s.process.exitMessage(); words != "" {
		how += ": " + words
	}
	return outboard.Errorf(outboard.SessionLost, op, "the worker on %s crashed (%s)", s.Device.ID, how)
}

// recordEnd logs and counts the session's end.
func (s *Session) recordEnd() {
	err := s.Err()
	end := "clean"
	if err != nil {
		end = outboard.KindOf(err).String()
		s.host.opts.Log.Info("session lost", "session", s.ID, "holder", s.Lease.Holder, "device", s.Device.ID, "reason", err)
	}
	s.host.metrics.ended.WithLabelValues(end).Inc()
	s.host.metrics.seconds.Observe(time.Since(s.Started).Seconds())
}

// readControl reads the worker's messages. The worker executes foreign code, so a message that
// cannot be decoded ends its session.
func (s *Session) readControl() {
	for {
		m, err := s.control.Receive()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.End(outboard.Errorf(outboard.Protocol, "session", "the worker on %s: %w", s.Device.ID, err))
			return
		}
		s.handleMessage(m)
	}
}

func (s *Session) handleMessage(m control.Message) {
	switch m.Type {
	case control.TypeLog:
		s.log(m)
	case control.TypeReady:
		s.forwardEarly()
	case control.TypeFinal:
		s.mu.Lock()
		s.final = &m
		s.mu.Unlock()
	case control.TypeStats:
		s.mu.Lock()
		s.stats = m.Stats
		s.mu.Unlock()
	case control.TypeIsolation: // inspect has determined it
	default:
		if !s.lease.handleMessage(s.ID, m) {
			s.turns.handleMessage(s.ID, m)
		}
	}
}

// maxLogText bounds a worker's line in the node's log.
const maxLogText = 1 << 10

// log writes a worker's line to the node's log, unless its lease has exceeded its rate. It returns
// the logged text, "" if the line was dropped.
func (s *Session) log(m control.Message) (text string) {
	dropped, ok := s.lease.lines.Allow(time.Now())
	if dropped > 0 {
		s.host.opts.Log.Warn("lines of a lease's workers were dropped", "lease", s.Lease.Lease, "lines", dropped)
	}
	if ok {
		text = strings.ToValidUTF8(m.Text[:min(len(m.Text), maxLogText)], "?")
		s.host.opts.Log.Info("worker says", "session", s.ID, "holder", s.Lease.Holder, "severity", m.Level[:min(len(m.Level), 16)], "text", text)
	}
	return text
}
