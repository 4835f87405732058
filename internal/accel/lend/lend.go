// Package lend runs the workers of a device's node: one process per session, of which nothing
// remains when the session ends.
//
// A [Host] owns the folders and the thread from which workers are started. A [Session] is a worker
// and its ring. A session ends when its worker exits, when [Session.End] is called, or when the
// node dies: then the kernel kills the worker. The program at the other end of the ring always
// learns the reason from the ring.
package lend

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/rmtree"
	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/shm"
)

// Options configure a Host.
type Options struct {
	// Dir holds the sessions' temporary folders and the holders' caches.
	Dir string
	// Command starts a worker: a program and its arguments.
	Command []string
	// Environ is the environment of which workers get a part; nil means this process's.
	Environ []string
	// Area is the size of each direction of a ring; 0 means shm.DefaultArea.
	Area int
	// MaxSessions bounds the live sessions of the host; 0 means 256.
	MaxSessions int
	// MaxLeaseSessions bounds the sessions of one lease; 0 means 64.
	MaxLeaseSessions int
	// Sandbox changes the isolation of workers.
	Sandbox Sandbox
	// Groups is the tree in which workers get control groups; nil: they get none.
	Groups *cgroup.Tree
	// Grace is how long a worker may take to exit once its ring is closed; 0 means 500ms.
	Grace   time.Duration
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

func (o *Options) setDefaults() {
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.Area == 0 {
		o.Area = shm.DefaultArea
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = 256
	}
	if o.MaxLeaseSessions == 0 {
		o.MaxLeaseSessions = 64
	}
	o.Sandbox.setDefaults()
	if o.Grace == 0 {
		o.Grace = 500 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
}

func (o *Options) validate() error {
	if o.Dir == "" || len(o.Command) == 0 {
		return outboard.Errorf(outboard.Invalid, "lend devices", "needs a folder and a worker's command")
	}
	return nil
}

// Host runs the workers of one node.
type Host struct {
	opts    Options
	spawner *spawner
	metrics *metrics
	caches  caches
	// compiles runs compile steps.
	compiles *compiles

	stop, watched chan struct{} // stop and stopped signal of watchCaches

	namespaces sandbox.Namespaces
	isolation  control.Isolation

	starting sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	reserved int // sessions that are live, starting or ending
	sessions map[outboard.SessionID]*Session
	// turns are the arbiters of the devices that have sessions.
	turns map[outboard.DeviceID]*deviceTurns
	// leases are the states of the leases that have sessions.
	leases map[leaseKey]*leaseState
}

// Open prepares the folders and removes the remains of a killed node from them.
func Open(ctx context.Context, opts Options) (*Host, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	h := &Host{opts: opts, sessions: map[outboard.SessionID]*Session{}, turns: map[outboard.DeviceID]*deviceTurns{}, leases: map[leaseKey]*leaseState{}}
	h.caches = caches{dir: h.cacheDir(), limit: int64(opts.Sandbox.Cache), used: map[string]int{}}
	h.namespaces = sandbox.DetectNamespaces()
	if os.Geteuid() == 0 && !h.namespaces.User() && slices.Contains(h.namespaces.List(), sandbox.Mounts) {
		h.caches.uids = uidRange{opts.Sandbox.FirstUID, opts.Sandbox.UIDs}
	}
	stale := []string{h.tmp()}
	if opts.Sandbox.NoCache {
		stale = append(stale, h.cacheDir())
	}
	for _, dir := range stale {
		if err := rmtree.Remove(dir); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{h.tmp(), h.cacheDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	m, err := newMetrics(opts.Metrics, h.count)
	if err != nil {
		return nil, err
	}
	h.metrics, h.spawner = m, newSpawner()
	if err := h.inspect(ctx); err != nil {
		// Starting a session returns an error of its own.
		opts.Log.Error("workers do not start", "error", err)
	} else {
		h.reportIsolation()
		if !slices.Contains(h.isolation.Mechanisms, sandbox.Identity) {
			// Workers keep this process's user and have no capabilities: they could not access
			// another user's cache.
			h.caches.uids = uidRange{}
		}
	}
	h.compiles = newCompiles(h)
	h.stop, h.watched = make(chan struct{}), make(chan struct{})
	go h.watchCaches()
	return h, nil
}

func (h *Host) tmp() string      { return filepath.Join(h.opts.Dir, "tmp") }
func (h *Host) cacheDir() string { return filepath.Join(h.opts.Dir, "cache") }

func (h *Host) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

// Sessions returns the live sessions, oldest first.
func (h *Host) Sessions() []*Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Session, 0, len(h.sessions))
	for _, s := range h.sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Session) int { return a.Started.Compare(b.Started) })
	return all
}

// Kill ends the session id with err.
func (h *Host) Kill(id outboard.SessionID, err error) error {
	h.mu.Lock()
	s := h.sessions[id]
	h.mu.Unlock()
	if s == nil {
		return outboard.Errorf(outboard.NotFound, "session "+string(id), "no such session lives on this node; `outboard sessions` lists them")
	}
	s.End(err)
	return nil
}

// Close ends every session and waits until all workers have exited.
func (h *Host) Close() error {
	h.mu.Lock()
	already := h.closed
	h.closed = true
	h.mu.Unlock()
	// Sessions that are just starting end by themselves: see addSession.
	h.starting.Wait()
	sessions := h.Sessions()
	for _, s := range sessions {
		s.End(errHostClosed)
	}
	for _, s := range sessions {
		<-s.Done()
	}
	if already {
		return nil
	}
	close(h.stop)
	<-h.watched
	h.compiles.close()
	h.spawner.close()
	h.metrics.unregister()
	return rmtree.Remove(h.tmp())
}

// watchInterval is how often the sizes of the folders of sessions and of the compile step are
// checked. Between two checks only the disk bounds their writes. A session that has a root of its
// own writes only to memory.
const watchInterval = 2 * time.Second

// watchCaches ends sessions and compile steps that write too much, until the host is closed.
func (h *Host) watchCaches() {
	defer close(h.watched)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-ticker.C:
		}
		for _, s := range h.Sessions() {
			if sizeOf(s.tmp()) > 2*h.caches.limit {
				s.End(outboard.Errorf(outboard.Exhausted, "session", "its files exceed twice the limit of a cache of compiled kernels, %v", h.opts.Sandbox.Cache))
			}
		}
		h.compiles.watch()
	}
}

// errHostClosed is the error of sessions whose node stops.
var errHostClosed = outboard.Errorf(outboard.SessionLost, "session", "the device's node stopped")

// reserveSession counts a session of a lease, unless the host is full or closed.
func (h *Host) reserveSession(spec *Spec) (*deviceTurns, *leaseState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, nil, errHostClosed
	case h.reserved >= h.opts.MaxSessions:
		return nil, nil, outboard.Errorf(outboard.Exhausted, "session", "%d sessions live on this node, which is its limit", h.opts.MaxSessions)
	}
	key := keyOf(&spec.Lease)
	l := h.leases[key]
	if l == nil {
		l = newLeaseState(spec.Lease.Memory)
	}
	if l.memory != spec.Lease.Memory {
		return nil, nil, outboard.Errorf(outboard.Conflict, "session", "lease %s has sessions with %v of memory, not %v", key.lease, l.memory, spec.Lease.Memory)
	}
	if l.members >= h.opts.MaxLeaseSessions {
		return nil, nil, outboard.Errorf(outboard.Exhausted, "session", "lease %s has %d sessions, which is the limit: end some of the program's processes", spec.Lease.Lease, l.members)
	}
	h.leases[key] = l
	l.members++
	h.reserved++
	h.starting.Add(1)
	t := h.turns[spec.Device.ID]
	if t == nil {
		t = newTurns(spec.Device.Type, h.opts.Groups)
		h.turns[spec.Device.ID] = t
	}
	t.members++
	return t, l, nil
}

// addSession publishes a started session. If the host was closed meanwhile, the session ends.
func (h *Host) addSession(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.starting.Done()
	h.sessions[s.ID] = s
	if h.closed {
		s.End(errHostClosed)
	}
}

// removeUnstarted removes a session that could not start.
func (h *Host) removeUnstarted(s *Session) {
	h.removeSession(s)
	h.starting.Done()
}

// removeSession removes a session that has ended.
func (h *Host) removeSession(s *Session) {
	var idle *cgroup.Group
	defer func() {
		if err := idle.Remove(); err != nil {
			h.opts.Log.Error("a lease's control group is left", "lease", s.Lease.Lease, "error", err)
		}
	}()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s.ID)
	h.reserved--
	s.turns.leave(s.ID)
	s.lease.leave(s.ID)
	if s.lease.members--; s.lease.members == 0 {
		delete(h.leases, keyOf(&s.Lease))
		idle = s.lease.group
		_ = s.lease.priority.group.Close()
	}
	if s.turns.members--; s.turns.members == 0 {
		delete(h.turns, s.Device.ID)
	}
}
