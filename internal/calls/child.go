package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric/policy"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// A child is a process as its node sees it.
type child struct {
	host    *Host
	number  int
	proc    Launched
	control *control
	done    chan struct{} // closed when it has ended
	err     error         // then: what was wrong

	// Set by start.
	pid     int
	version string
	started time.Time
	waited  time.Duration // before it was started; under Host.changing

	retiring bool          // under Host.mu
	noted    bool          // under Host.books: what it has counted is in the ledger
	held     []policy.Held // under Host.mu: its calls that policies count
}

// start has the process follow the pool.
func (c *child) start(ctx context.Context, config Config) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	config.Process = c.number
	a, err := c.control.ask(ctx, &message{Type: msgStart, Config: &config})
	if err != nil {
		return err
	}
	if a.Ready == nil {
		return outboard.Errorf(outboard.Protocol, msgStart, "the process did not say that it is ready")
	}
	c.pid, c.version, c.started = a.Ready.PID, a.Ready.Version, time.Now()
	return nil
}

// reason is why a process failed: where it is gone, what it said at its end.
func (c *child) reason(err error) error {
	if outboard.KindOf(err) != outboard.Unreachable {
		return err
	}
	select {
	case <-c.done:
	case <-time.After(afterEnd):
		return err
	}
	ended := c.err
	if ended == nil {
		ended = errors.New("it ended at once, without a word")
	}
	return outboard.Errorf(outboard.Invalid, "start the process that carries calls", "%w", ended)
}

func (c *child) serve(ctx context.Context, files []*os.File) error {
	_, err := c.control.ask(ctx, &message{Type: msgServe, files: files})
	return err
}

// drain has the process end after its last call.
func (c *child) drain(ctx context.Context) (Flying, error) {
	c.host.mu.Lock()
	c.retiring = true
	c.host.mu.Unlock()
	a, err := c.control.ask(ctx, &message{Type: msgDrain})
	if err != nil || a.Flying == nil {
		return Flying{}, err
	}
	return *a.Flying, nil
}

func (c *child) about() client.CallsProcess {
	return client.CallsProcess{Number: c.number, PID: c.pid, Version: c.version}
}

func (c *child) lives() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once.
func (c *child) kill() {
	_ = c.control.conn.Close()
	c.proc.Kill()
}

// endLimit is how long a process may take to end when its node does.
const endLimit = 10 * time.Second

// end ends the process in good order.
func (c *child) end() {
	_ = c.control.conn.Close()
	t := time.NewTimer(endLimit)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		c.host.log.Warn("a process that carries calls does not end, and is killed", "process", c.number, "pid", c.pid)
		c.proc.Kill()
		<-c.done
	}
}

// take treats a request of the process.
func (c *child) take(m *message) {
	h := c.host
	switch m.Type {
	case msgState:
		h.running.Go(func() { h.lendState(m) })
	case msgOffer:
		h.running.Go(func() {
			e, err := h.offer(c.number, m.Endpoint, m.Previous)
			c.control.answer(m, &message{Endpoint: e}, err)
		})
	case msgSettled:
		h.settled(c.number, m.ID)
	case msgWithdraw:
		h.running.Go(func() { c.control.answer(m, nil, h.withdraw(c.number, m.ID)) })
	case msgLink:
		h.running.Go(func() {
			f, err := h.link(m.Process)
			c.control.answer(m, &message{files: f}, err)
		})
	case msgLeft:
		h.running.Go(func() { c.control.answer(m, nil, h.note(c, m.file())) })
	case msgHeld:
		h.heldBy(c, m.file())
	case msgWhere:
		h.running.Go(func() { c.control.answer(m, &message{ID: h.where(c, m.ID)}, nil) })
	default:
		m.close()
		c.control.answer(m, nil, outboard.Errorf(outboard.Protocol, m.Type, "the node does not know how"))
	}
}

func (h *Host) lendState(m *message) {
	nc, err := connOf(m.file())
	if err == nil {
		err = h.opts.State.Lend(h.life, nc)
	}
	if err != nil && h.life.Err() == nil {
		h.log.Debug("the pool's state is not lent", "error", err)
	}
}

// link makes a connection to another process, and returns its near end.
func (h *Host) link(process int) ([]*os.File, error) {
	h.mu.Lock()
	c := h.children[process]
	h.mu.Unlock()
	if c == nil {
		return nil, outboard.Errorf(outboard.NotFound, "link", "process %d has ended", process)
	}
	near, far, err := pairOfStreams()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	if err := c.control.tell(&message{Type: msgNear, files: []*os.File{far}}); err != nil {
		return nil, errors.Join(err, near.Close())
	}
	return []*os.File{near}, nil
}

// where asks the other processes which endpoint has a stream.
func (h *Host) where(asks *child, stream string) string {
	ctx, cancel := context.WithTimeout(h.life, whereLimit)
	defer cancel()
	for _, c := range h.earlier() {
		if c == asks {
			continue
		}
		// Its error is that the process has ended, and with it the stream.
		if a, err := c.control.ask(ctx, &message{Type: msgWhere, ID: stream}); err == nil && a.ID != "" {
			return a.ID
		}
	}
	return ""
}

// whereLimit is how long another process may take to say what it has.
const whereLimit = time.Second

// ---- endpoints

// An offered is an endpoint that a process has offered.
type offered struct {
	endpoint services.Endpoint
	process  int // that reaches its program
}

// offer tells the pool of a program. One that has changed over from another process
// remains the endpoint that it was.
func (h *Host) offer(process int, e *services.Endpoint, previous string) (*services.Endpoint, error) {
	if e == nil {
		return nil, outboard.Errorf(outboard.Protocol, "offer", "no endpoint")
	}
	told := h.enter(process, *e, previous)
	return &told, h.tellPool(told)
}

func (h *Host) enter(process int, e services.Endpoint, previous string) services.Endpoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	had := h.offered[e.ID]
	if before := h.offered[previous]; e.ID == "" && before != nil && before.process != process && before.endpoint.PID == e.PID {
		e.ID, e.Started, had = previous, before.endpoint.Started, before
	}
	if had == nil {
		h.serial++
		e.ID = fmt.Sprintf("%s/%d", h.opts.Config.Self, h.serial)
		had = &offered{process: process}
		h.offered[e.ID] = had
	}
	// Until the program is settled it is reached where it was.
	e.Node, e.Process = h.opts.Config.Self, had.process
	had.endpoint = e
	return e
}

// settled says that a program is reached through a process now.
func (h *Host) settled(process int, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.offered[id]
	if o == nil || o.process == process {
		return
	}
	old := h.children[o.process]
	o.process, o.endpoint.Process = process, process
	e := o.endpoint
	h.running.Go(func() {
		if err := h.tellPool(e); err != nil && h.life.Err() == nil {
			h.log.Warn("an endpoint has changed over, and the pool does not know", "endpoint", id, "error", err)
		}
		if old != nil {
			// Its error is that the process has ended already.
			_ = old.control.tell(&message{Type: msgMoved, ID: id})
		}
	})
}

func (h *Host) tellPool(e services.Endpoint) error {
	ctx, cancel := context.WithTimeout(h.life, offerLimit)
	defer cancel()
	return h.opts.Registry.Offer(ctx, e)
}

// withdraw ends an endpoint that the process has, and no other's.
func (h *Host) withdraw(process int, id string) error {
	h.mu.Lock()
	if o := h.offered[id]; o == nil || o.process != process {
		h.mu.Unlock()
		return nil
	}
	delete(h.offered, id)
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.life, offerLimit)
	defer cancel()
	return h.opts.Registry.Withdraw(ctx, id)
}

// withdrawAll ends the endpoints of a process that has ended.
func (h *Host) withdrawAll(process int) {
	h.mu.Lock()
	var ids []string
	for id, o := range h.offered {
		if o.process == process {
			ids = append(ids, id)
		}
	}
	h.mu.Unlock()
	for _, id := range ids {
		if err := h.withdraw(process, id); err != nil {
			h.log.Warn("an endpoint that is gone is still offered", "endpoint", id, "error", err)
		}
	}
}

// Speak makes this node speak for a gRPC server. Every process reaches it.
func (h *Host) Speak(ctx context.Context, e services.Endpoint) (services.Endpoint, error) {
	const op = "offer a gRPC server"
	if _, _, err := net.SplitHostPort(e.Address); err != nil {
		return e, outboard.Errorf(outboard.Invalid, op, "address %q: write HOST:PORT", e.Address)
	}
	if len(e.Services) == 0 {
		return e, outboard.Errorf(outboard.Invalid, op, "it serves nothing: name its services")
	}
	h.mu.Lock()
	h.serial++
	e.ID = fmt.Sprintf("%s/%s.%d", h.opts.Config.Self, e.Address, h.serial)
	h.mu.Unlock()
	e.Node, e.Started, e.Process = h.opts.Config.Self, time.Now().UTC(), 0
	return e, h.opts.Registry.Offer(ctx, e)
}

func sortAttrs(attrs []slog.Attr) {
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return cmp.Compare(a.Key, b.Key) })
}

func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }
