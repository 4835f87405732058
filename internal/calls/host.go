package calls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// HostOptions are a node's.
type HostOptions struct {
	// Config is for the processes; their numbers are put in.
	Config Config
	// Launch starts a process.
	Launch   Launcher
	State    *state.State
	Registry *services.Registry
	// Programs is where programs connect, and Plain where plain gRPC does; nil:
	// nowhere. The Host closes them.
	Programs *net.UnixListener
	Plain    *net.TCPListener
	Logger   *slog.Logger
}

// A Host is a node's side of the process that carries its calls. It has the
// listening sockets, so that nobody who connects is turned away while one process
// follows another.
type Host struct {
	opts  HostOptions
	log   *slog.Logger
	files []*os.File // of the listening sockets

	roster *roster

	// changing is held while one process follows another; before mu.
	changing chan struct{}
	binary   string // of the current process; under changing

	books sync.RWMutex // held while counts are added up; before mu
	past  ledger       // under books: of processes that have ended

	mu       sync.Mutex
	current  *child
	children map[int]*child
	number   int // of the last process
	closing  bool
	// heldToldOf says that the current process counts calls of others.
	heldToldOf bool

	life    context.Context //nolint:containedctx // of the goroutines
	stop    context.CancelFunc
	running sync.WaitGroup
}

// OpenHost starts the process. It returns when that takes connections.
func OpenHost(ctx context.Context, opts HostOptions) (*Host, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Host{
		opts: opts, log: opts.Logger, changing: make(chan struct{}, 1),
		children: map[int]*child{}, roster: newRoster(opts.Config.Self, opts.Registry),
	}
	h.opts.Config.Handover = Handover
	h.life, h.stop = context.WithCancel(context.Background())
	if err := h.begin(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *Host) begin(ctx context.Context) error {
	f, err := h.opts.Programs.File()
	if err != nil {
		return err
	}
	h.files = append(h.files, f)
	if h.opts.Plain != nil {
		if f, err = h.opts.Plain.File(); err != nil {
			return err
		}
		h.files = append(h.files, f)
	}
	h.changing <- struct{}{}
	defer func() { <-h.changing }()
	return h.replace(ctx, "")
}

// replace starts the first process, or one in the place of one that has died.
func (h *Host) replace(ctx context.Context, binary string) error {
	c, err := h.launch(ctx, binary)
	if err != nil {
		return err
	}
	if err := c.serve(ctx, h.files); err != nil {
		c.kill()
		return err
	}
	h.binary = binary
	h.install(c)
	return nil
}

// install sends what comes from now on to a process. It is nobody's before.
func (h *Host) install(c *child) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = c
}

// launch starts a process that follows the pool, and takes no connections yet.
func (h *Host) launch(ctx context.Context, binary string) (*child, error) {
	ours, theirs, err := pairOfPackets()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	control, err := newControl(ours)
	if err != nil {
		return nil, err
	}
	proc, err := h.opts.Launch(binary, theirs)
	if err != nil {
		return nil, errors.Join(outboard.Errorf(outboard.Invalid, "start the process that carries calls", "%w", err), control.conn.Close())
	}
	c := h.adopt(proc, control)
	_ = theirs.Close() // so that the process's end is the socket's
	if err := c.start(ctx, h.opts.Config); err != nil {
		err = c.reason(err)
		c.kill()
		return nil, err
	}
	return c, nil
}

// adopt numbers a process and looks after it.
func (h *Host) adopt(proc Launched, control *control) *child {
	c := &child{host: h, proc: proc, control: control, done: make(chan struct{})}
	h.mu.Lock()
	h.number++
	c.number = h.number
	h.children[c.number] = c
	h.mu.Unlock()
	control.handle = c.take
	h.running.Go(control.run)
	h.running.Go(func() {
		c.err = proc.Wait()
		close(c.done)
		_ = control.conn.Close()
		h.ended(c)
	})
	return c
}

// ended is called when a process has ended.
func (h *Host) ended(c *child) {
	h.mu.Lock()
	delete(h.children, c.number)
	died := h.current == c && !h.closing
	retired := c.retiring
	closing := h.closing
	h.mu.Unlock()
	if closing {
		return
	}
	if err := h.roster.withdrawAll(h.life, c.number); err != nil && h.life.Err() == nil {
		h.log.Warn("endpoints that are gone are still offered", "process", c.number, "error", err)
	}
	h.passHeld()
	switch {
	case died:
		h.log.Error("the process that carries calls has died: calls in flight have failed, and a new one is started", "process", c.number, "pid", c.pid, "error", c.err)
		h.running.Go(func() { h.revive(c) })
	case retired && c.err == nil:
		h.log.Info("the last call of an earlier process is over", "process", c.number, "pid", c.pid)
	case retired:
		h.log.Error("an earlier process has died: its calls have failed", "process", c.number, "pid", c.pid, "error", c.err)
	}
}

// The waits before a process that has died is started again.
const (
	firstWait = 50 * time.Millisecond
	longWait  = 10 * time.Second
	longLife  = 10 * time.Second // after which it begins with the first wait again
)

// revive starts a process in the place of a dead one.
func (h *Host) revive(dead *child) {
	select {
	case h.changing <- struct{}{}:
		defer func() { <-h.changing }()
	case <-h.life.Done():
		return
	}
	wait := firstWait
	if time.Since(dead.started) < longLife {
		wait = min(2*max(dead.waited, firstWait), longWait)
	}
	for h.at() == dead && pause(h.life, wait) {
		err := h.replace(h.life, h.binary)
		if err == nil {
			h.at().waited = wait
			h.log.Info("a new process carries calls", "process", h.at().number, "pid", h.at().pid)
			return
		}
		if h.life.Err() != nil {
			return
		}
		h.log.Error("the process that carries calls does not start", "error", err, "again_in", wait.String())
		wait = min(2*wait, longWait)
	}
}

func (h *Host) at() *child {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// Upgrade has a new process of a program take the node's calls over, "" for the
// node's own. Calls in flight go on. When it fails the process that there was goes
// on.
func (h *Host) Upgrade(ctx context.Context, binary string) (client.Upgrade, error) {
	const op = "upgrade"
	select {
	case h.changing <- struct{}{}:
		defer func() { <-h.changing }()
	default:
		return client.Upgrade{}, outboard.Errorf(outboard.Conflict, op, "one process follows another just now: try again")
	}
	began := time.Now()
	old := h.at()
	next, err := h.launch(ctx, binary)
	if err != nil {
		return client.Upgrade{}, h.stays(op, err)
	}
	// Whoever asked may leave now: this goes on to its end.
	ctx, cancel := context.WithTimeout(h.life, startLimit)
	defer cancel()
	paused := time.Now()
	if err := h.pass(ctx, old, next); err != nil {
		next.kill()
		return client.Upgrade{}, h.stays(op, err)
	}
	h.binary = binary
	now := time.Now()
	u := client.Upgrade{
		Node: h.opts.Config.Self, From: old.about(), To: next.about(),
		Took: client.Duration(now.Sub(began)), Pause: client.Duration(now.Sub(paused)),
	}
	// An old process that has died has nothing in flight.
	if flying, err := old.drain(ctx); err == nil {
		u.Calls, u.Streams = flying.Calls, flying.Streams
	}
	h.passHeld()
	h.log.Info("another process carries calls", "from", u.From.Version, "to", u.To.Version, "process", u.To.Number,
		"pid", u.To.PID, "calls", u.Calls, "streams", u.Streams)
	return u, nil
}

func (h *Host) stays(op string, err error) error {
	return outboard.Errorf(outboard.KindOf(err), op, "%w; the process that carries calls stays", err)
}

// pass has one process take no more connections, and then another take them. Who
// connects in between waits in the sockets' queues.
func (h *Host) pass(ctx context.Context, old, next *child) error {
	paused, err := old.control.ask(ctx, &message{Type: msgPause})
	if err != nil && old.lives() {
		return errors.Join(err, old.serve(ctx, h.files))
	}
	if err == nil {
		next.inherit(ctx, paused)
	}
	if err := next.serve(ctx, h.files); err != nil {
		err = next.reason(err)
		if old.lives() {
			err = errors.Join(err, old.serve(ctx, h.files))
		}
		return err
	}
	h.install(next)
	return nil
}

// Close ends the processes, and their calls.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closing = true
	var all []*child
	for _, c := range h.children {
		all = append(all, c)
	}
	h.mu.Unlock()
	for _, c := range all {
		_ = c.control.conn.Close()
	}
	for _, c := range all {
		c.end()
	}
	h.stop()
	h.running.Wait()
	err := h.opts.Programs.Close()
	if h.opts.Plain != nil {
		err = errors.Join(err, h.opts.Plain.Close())
	}
	for _, f := range h.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// PlainAddr is where plain gRPC is served, "" for nowhere.
func (h *Host) PlainAddr() string {
	if h == nil || h.opts.Plain == nil {
		return ""
	}
	return h.opts.Plain.Addr().String()
}

// ServePeer hands the connection of another node over, of which seen was read
// already. It stays the caller's to close.
func (h *Host) ServePeer(nc net.Conn, seen []byte) error {
	source, ok := nc.(interface{ File() (*os.File, error) })
	if !ok {
		return fmt.Errorf("hand a connection over: %T has no descriptor", nc)
	}
	f, err := source.File()
	if err != nil {
		return fmt.Errorf("hand a connection over: %w", err)
	}
	defer f.Close()
	// With the mutex, so that no connection comes to a process after it was asked to
	// send everybody elsewhere.
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		return errGone
	}
	return h.current.control.tell(&message{Type: msgPeer, Data: seen, files: []*os.File{f}})
}

// Processes are those that live, the one that takes new calls last.
func (h *Host) Processes() []client.CallsProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []client.CallsProcess
	for _, number := range slices.Sorted(maps.Keys(h.children)) {
		if c := h.children[number]; c != h.current && c.retiring {
			all = append(all, c.about())
		}
	}
	if h.current != nil && h.current.lives() {
		all = append(all, h.current.about())
	}
	return all
}
