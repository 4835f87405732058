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
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// HostOptions are the options of a Host.
type HostOptions struct {
	// Config configures the processes; the Host sets their numbers.
	Config Config
	// Launch starts a process.
	Launch   helper.Launcher
	State    *state.State
	Registry *services.Registry
	// Identify returns the identity that a program's credential proves, "" for none. It may
	// be nil, and does not block.
	Identify func(credential string) string
	// Admit decides about the process with a number, which connects to Programs. It may be nil.
	Admit func(pid int) Admission
	// Programs is the listener to which programs connect, Plain that for plain gRPC; nil: none. The
	// Host closes both.
	Programs *net.UnixListener
	Plain    *net.TCPListener
	Logger   *slog.Logger
}

// A Host is a node's side of the process that carries its calls. It owns the listening
// sockets, so that no connection is refused while one process replaces another.
type Host struct {
	opts  HostOptions
	log   *slog.Logger
	files []*os.File // of the listening sockets

	endpoints *endpointTable
	totals    totals // before mu

	// replacing is held while one process replaces another; before mu.
	replacing chan struct{}
	program   string // of the current process; under replacing

	mu       sync.Mutex
	current  *child
	children map[int]*child
	last     int // the number of the latest process
	closing  bool
	// heldSent says that the current process counts calls in flight of other processes.
	heldSent bool

	life    context.Context //nolint:containedctx // of the goroutines
	stop    context.CancelFunc
	running sync.WaitGroup
}

// OpenHost starts the process. It returns when the process accepts connections.
func OpenHost(ctx context.Context, opts HostOptions) (*Host, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Host{
		opts: opts, log: opts.Logger, replacing: make(chan struct{}, 1),
		children: map[int]*child{}, endpoints: newEndpointTable(opts.Config.Self, opts.Registry),
	}
	h.opts.Config.Handover = Handover
	if opts.State != nil {
		h.opts.Config.StateName = opts.State.Name()
	}
	h.life, h.stop = context.WithCancel(context.Background())
	if err := h.startFirst(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *Host) startFirst(ctx context.Context) error {
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
	h.replacing <- struct{}{}
	defer func() { <-h.replacing }()
	return h.startCurrent(ctx, "")
}

// startCurrent starts the first process, or the replacement of a dead one.
func (h *Host) startCurrent(ctx context.Context, program string) error {
	c, err := h.launch(ctx, program)
	if err != nil {
		return err
	}
	if err := c.serve(ctx, h.files); err != nil {
		c.kill()
		return err
	}
	h.program = program
	h.setCurrent(c)
	return nil
}

// setCurrent sends new connections to a process.
func (h *Host) setCurrent(c *child) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = c
}

func (h *Host) currentChild() *child {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// retiring returns the processes that are being replaced.
func (h *Host) retiring() []*child {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*child
	for _, c := range h.children {
		if c.retiring {
			all = append(all, c)
		}
	}
	return all
}

// child returns the process of a number, nil if it has ended.
func (h *Host) child(number int) *child {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.children[number]
}

// launch starts a process that follows the pool, and accepts no connections yet.
func (h *Host) launch(ctx context.Context, program string) (*child, error) {
	conn, far, err := ipc.Pair(ipc.Options{})
	if err != nil {
		return nil, err
	}
	defer far.Close()
	proc, err := h.opts.Launch(program, far)
	if err != nil {
		return nil, errors.Join(outboard.Errorf(outboard.Invalid, "start the process that carries calls", "%w", err), conn.Close())
	}
	c := h.adopt(proc, conn)
	_ = far.Close() // so that the connection ends when the process ends
	if err := c.start(ctx, h.opts.Config); err != nil {
		err = c.withExitReason(err)
		c.kill()
		return nil, err
	}
	h.running.Go(c.watch)
	return c, nil
}

// adopt numbers a process, serves its requests, and waits for its end.
func (h *Host) adopt(proc helper.Process, conn *ipc.Conn) *child {
	c := &child{host: h, proc: proc, conn: conn, done: make(chan struct{})}
	h.mu.Lock()
	h.last++
	c.number = h.last
	h.children[c.number] = c
	h.mu.Unlock()
	h.running.Go(func() { conn.Serve(c.handle) })
	h.running.Go(func() {
		c.err = proc.Wait()
		close(c.done)
		_ = conn.Close()
		h.ended(c)
	})
	return c
}

// ended handles the end of a process.
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
	if err := h.endpoints.withdrawAll(h.life, c.number); err != nil && h.life.Err() == nil {
		h.log.Warn("endpoints that are gone are still offered", "process", c.number, "error", err)
	}
	h.sendHeld()
	switch {
	case died:
		h.log.Error("the process that carries calls has died: calls in flight have failed, and a new one is started", "process", c.number, "pid", c.pid, "error", c.err)
		h.running.Go(func() { h.restart(c) })
	case retired && c.err == nil:
		h.log.Info("the last call of an earlier process is over", "process", c.number, "pid", c.pid)
	case retired:
		h.log.Error("an earlier process has died: its calls have failed", "process", c.number, "pid", c.pid, "error", c.err)
	}
}

// The exponential back-off before a dead process is started again.
const (
	minBackoff   = 50 * time.Millisecond
	maxBackoff   = 10 * time.Second
	stableUptime = 10 * time.Second // uptime after which the back-off begins anew
)

// restart starts a process in place of a dead one.
func (h *Host) restart(dead *child) {
	select {
	case h.replacing <- struct{}{}:
		defer func() { <-h.replacing }()
	case <-h.life.Done():
		return
	}
	wait := minBackoff
	if time.Since(dead.started) < stableUptime {
		wait = min(2*max(dead.backoff, minBackoff), maxBackoff)
	}
	for h.currentChild() == dead && sleep(h.life, wait) {
		err := h.startCurrent(h.life, h.program)
		if err == nil {
			c := h.currentChild()
			c.backoff = wait
			h.log.Info("a new process carries calls", "process", c.number, "pid", c.pid)
			return
		}
		if h.life.Err() != nil {
			return
		}
		h.log.Error("the process that carries calls does not start", "error", err, "again_in", wait.String())
		wait = min(2*wait, maxBackoff)
	}
}

// Health returns nil if a process carries calls and answers before ctx is done.
func (h *Host) Health(ctx context.Context) error {
	c := h.currentChild()
	if c == nil {
		return nil // the node is starting
	}
	select {
	case <-c.done:
		return outboard.Errorf(outboard.Unreachable, "the process that carries calls", "it has ended, and is started again")
	default:
	}
	if !helper.Responds(ctx, c.conn, msgPing) {
		return outboard.Errorf(outboard.Unreachable, "the process that carries calls", "it does not answer")
	}
	return nil
}

// Close ends the processes, and their calls.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closing = true
	all := slices.Collect(maps.Values(h.children))
	h.mu.Unlock()
	for _, c := range all {
		_ = c.conn.Close()
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

// PlainAddr returns the address on which plain gRPC is served, "" for none.
func (h *Host) PlainAddr() string {
	if h == nil || h.opts.Plain == nil {
		return ""
	}
	return h.opts.Plain.Addr().String()
}

// ServePeer passes the connection of another node, from which read was read already, to the
// process. The caller still closes nc.
func (h *Host) ServePeer(nc net.Conn, read []byte) error {
	source, ok := nc.(interface{ File() (*os.File, error) })
	if !ok {
		return fmt.Errorf("pass a connection: %T has no descriptor", nc)
	}
	f, err := source.File()
	if err != nil {
		return fmt.Errorf("pass a connection: %w", err)
	}
	defer f.Close()
	// The mutex is held, so that no connection is passed to a process after drain.
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		return ipc.ErrClosed
	}
	return h.current.conn.Send(msgPeer, &body{Data: read}, f)
}

// Processes lists the living processes, the one that accepts new calls last.
func (h *Host) Processes() []client.CallsProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []client.CallsProcess
	for _, number := range slices.Sorted(maps.Keys(h.children)) {
		if c := h.children[number]; c != h.current && c.retiring {
			all = append(all, c.describe())
		}
	}
	if h.current != nil && h.current.alive() {
		all = append(all, h.current.describe())
	}
	return all
}

// InProcess returns a Launcher that runs Run in this process, for tests.
func InProcess(opts ProcessOptions) helper.Launcher {
	return helper.Goroutine(func(ctx context.Context, socket *os.File) error { return Run(ctx, socket, opts) })
}
