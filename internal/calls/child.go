package calls

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/fabric/policy"
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

	retiring bool              // under Host.mu
	noted    bool              // under Host.books: what it has counted is in the ledger
	held     []policy.InFlight // under Host.mu: its calls that policies count
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
			e, err := h.roster.offer(h.life, c.number, m.Endpoint, m.Previous)
			c.control.answer(m, &message{Endpoint: e}, err)
		})
	case msgSettled:
		h.settled(c.number, m.ID)
	case msgWithdraw:
		h.running.Go(func() { c.control.answer(m, nil, h.roster.withdraw(h.life, c.number, m.ID)) })
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

// settled tells the pool, and the process that a program has left.
func (h *Host) settled(process int, id string) {
	before := h.roster.settled(process, id)
	if before == 0 {
		return
	}
	h.mu.Lock()
	old := h.children[before]
	h.mu.Unlock()
	h.running.Go(func() {
		if err := h.roster.tell(h.life, id); err != nil && h.life.Err() == nil {
			h.log.Warn("an endpoint has changed over, and the pool does not know", "endpoint", id, "error", err)
		}
		if old != nil {
			// Its error is that the process has ended already.
			_ = old.control.tell(&message{Type: msgMoved, ID: id})
		}
	})
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
	e.ID = h.roster.id(e.Address + ".")
	e.Node, e.Started, e.Process = h.opts.Config.Self, time.Now().UTC(), 0
	return e, h.opts.Registry.Offer(ctx, e)
}

func sortAttrs(attrs []slog.Attr) {
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return cmp.Compare(a.Key, b.Key) })
}

func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }
