package calls

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// A child is a node's side of one process.
type child struct {
	host   *Host
	number int
	proc   helper.Process
	conn   *ipc.Conn
	done   chan struct{} // closed when it has ended
	err    error         // the reason of the end; set before done is closed

	// The following fields are set by start.
	pid     int
	version string
	started time.Time
	backoff time.Duration // before its start; under Host.replacing

	retiring bool              // under Host.mu
	left     bool              // under Host.mu: it has passed its counters, and gets no links
	counted  bool              // under totals.mu: its counters are in the totals
	held     []policy.InFlight // under Host.mu: its calls in flight that policies count
}

// start has the process follow the pool.
func (c *child) start(ctx context.Context, config Config) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	config.Process = c.number
	m, err := c.conn.Call(ctx, msgStart, &body{Config: &config})
	if err != nil {
		return err
	}
	b, err := bodyOf(m)
	if err == nil && b.Ready == nil {
		err = outboard.Errorf(outboard.Protocol, msgStart, "the process did not reply that it is ready")
	}
	if err != nil {
		return err
	}
	c.pid, c.version, c.started = b.Ready.PID, b.Ready.Version, time.Now()
	return nil
}

// exitWait is how long after the end of its connection a process may end.
const exitWait = time.Second

// withExitReason returns the reason that a process failed: its exit report, if it has ended.
func (c *child) withExitReason(err error) error {
	if outboard.KindOf(err) != outboard.Unreachable {
		return err
	}
	select {
	case <-c.done:
	case <-time.After(exitWait):
		return err
	}
	ended := c.err
	if ended == nil {
		ended = errors.New("it exited at once and reported nothing")
	}
	return outboard.Errorf(outboard.Invalid, "start the process that carries calls", "%w", ended)
}

// serve has the process accept connections.
func (c *child) serve(ctx context.Context, files []*os.File) error {
	m, err := c.conn.Call(ctx, msgServe, nil, files...)
	if err == nil {
		m.Close()
	}
	return err
}

// drain has the process end after its last call.
func (c *child) drain(ctx context.Context) (InFlight, error) {
	c.host.mu.Lock()
	c.retiring = true
	c.host.mu.Unlock()
	m, err := c.conn.Call(ctx, msgDrain, nil)
	if err != nil {
		return InFlight{}, err
	}
	b, err := bodyOf(m)
	if err != nil || b.InFlight == nil {
		return InFlight{}, err
	}
	return *b.InFlight, nil
}

func (c *child) describe() client.CallsProcess {
	return client.CallsProcess{Number: c.number, PID: c.pid, Version: c.version}
}

func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once.
func (c *child) kill() {
	_ = c.conn.Close()
	c.proc.Kill()
}

// pings are how a process is watched.
var pings = helper.Pings{Kind: msgPing, Interval: 10 * time.Second, Limit: 30 * time.Second}

// watch kills a process that does not respond to pings.
func (c *child) watch() {
	if helper.Watch(c.host.life, c.conn, pings) {
		c.host.log.Error("a process that carries calls does not respond, and is killed", "process", c.number, "pid", c.pid, "after", pings.Limit)
		c.proc.Kill()
	}
}

// endLimit is how long a process may take to end when its node ends.
const endLimit = 10 * time.Second

// end waits for the end of a process whose connection is closed, and kills it after endLimit.
func (c *child) end() {
	_ = c.conn.Close()
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

// handle serves a request of the process.
func (c *child) handle(m *ipc.Message) {
	h := c.host
	var b body
	if err := m.Decode(&b); err != nil {
		m.Close()
		c.reply(m, nil, err)
		return
	}
	switch m.Type {
	case msgState:
		h.running.Go(func() { h.lendState(detachFile(m)) })
	case msgOffer:
		h.running.Go(func() {
			e, err := h.endpoints.offer(h.life, c.number, b.Endpoint, b.Previous)
			c.reply(m, &body{Endpoint: e}, err)
		})
	case msgSettled:
		h.settled(c.number, b.ID)
	case msgWithdraw:
		h.running.Go(func() { c.reply(m, nil, h.endpoints.withdraw(h.life, c.number, b.ID)) })
	case msgIdentify:
		c.reply(m, &body{ID: h.identify(b.ID)}, nil)
	case msgAdmit:
		h.running.Go(func() { c.reply(m, &body{ID: string(h.admit(b.Process))}, nil) })
	case msgLink:
		h.running.Go(func() { c.link(m, b.Process) })
	case msgLeft:
		h.running.Go(func() {
			c.markLeft()
			c.reply(m, nil, h.totals.add(c, detachFile(m)))
		})
	case msgInFlight:
		h.storeHeld(c, detachFile(m))
	case msgLocate:
		h.running.Go(func() { c.reply(m, &body{ID: h.locateStream(c, b.ID)}, nil) })
	default:
		m.Close()
		c.reply(m, nil, outboard.Errorf(outboard.Protocol, m.Type, "the node does not know this request"))
	}
}

// reply replies to the process. An error means that the process has ended, which Serve notices.
func (c *child) reply(to *ipc.Message, b *body, err error, files ...*os.File) {
	if b == nil {
		b = &body{}
	}
	_ = c.conn.Reply(to, b, err, files...)
}

// link connects the process to a sibling.
func (c *child) link(m *ipc.Message, process int) {
	sibling := c.host.child(process)
	if sibling == nil {
		c.reply(m, nil, outboard.Errorf(outboard.NotFound, "link", "process %d has ended", process))
		return
	}
	near, far, err := ipc.StreamPair()
	if err != nil {
		c.reply(m, nil, err)
		return
	}
	defer near.Close()
	defer far.Close()
	c.reply(m, nil, sibling.passLink(far), near)
}

// passLink passes one end of a link to the process. The mutex is held, so that no link is passed
// after markLeft.
func (c *child) passLink(end *os.File) error {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	if c.left {
		return outboard.Errorf(outboard.NotFound, "link", "process %d has ended", c.number)
	}
	return c.conn.Send(msgSibling, nil, end)
}

// markLeft records that the process ends as soon as its links are over.
func (c *child) markLeft() {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.left = true
}

// identify returns the identity that a credential proves, "" for none.
func (h *Host) identify(credential string) string {
	if h.opts.Identify == nil {
		return ""
	}
	return h.opts.Identify(credential)
}

// admit decides about a process that connects.
func (h *Host) admit(pid int) Admission {
	if h.opts.Admit == nil {
		return AdmitProgram
	}
	return h.opts.Admit(pid)
}

func (h *Host) lendState(f *os.File) {
	nc, err := ipc.NetConn(f)
	if err == nil {
		err = h.opts.State.Lend(h.life, nc, state.Borrower{Node: h.opts.Config.stateName()})
	}
	if err != nil && h.life.Err() == nil {
		h.log.Debug("the pool's state is not lent", "error", err)
	}
}

// locateStream returns the endpoint of a stream that a process other than exclude carries.
func (h *Host) locateStream(exclude *child, stream string) string {
	ctx, cancel := context.WithTimeout(h.life, locateLimit)
	defer cancel()
	for _, c := range h.retiring() {
		if c == exclude {
			continue
		}
		// An error means that the process has ended, and with it the stream.
		m, err := c.conn.Call(ctx, msgLocate, &body{ID: stream})
		if err != nil {
			continue
		}
		if b, err := bodyOf(m); err == nil && b.ID != "" {
			return b.ID
		}
	}
	return ""
}

// locateLimit is how long the other processes may take to find a stream.
const locateLimit = time.Second

// settled notes that a process reaches the program of an endpoint, and reports it to the
// pool and to the process that the program has left.
func (h *Host) settled(process int, id string) {
	before := h.endpoints.settled(process, id)
	if before == 0 {
		return
	}
	old := h.child(before)
	h.running.Go(func() {
		if err := h.endpoints.publish(h.life, id); err != nil && h.life.Err() == nil {
			h.log.Warn("an endpoint has moved to another process, and the pool's table is not up to date", "endpoint", id, "error", err)
		}
		if old != nil {
			// An error means that the process has ended already.
			_ = old.conn.Send(msgMoved, &body{ID: id})
		}
	})
}

// AddServer offers a gRPC server that this node speaks for. Every process reaches it.
func (h *Host) AddServer(ctx context.Context, e services.Endpoint) (services.Endpoint, error) {
	const op = "offer a gRPC server"
	_, port, err := net.SplitHostPort(e.Address)
	if err != nil {
		return e, outboard.Errorf(outboard.Invalid, op, "address %q: write HOST:PORT", e.Address)
	}
	if number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port); err != nil || number == 0 {
		return e, outboard.Errorf(outboard.Invalid, op, "address %q: the port must be a number from 1 to 65535", e.Address)
	}
	if len(e.Services) == 0 {
		return e, outboard.Errorf(outboard.Invalid, op, "it serves nothing: name its services")
	}
	if i := slices.IndexFunc(e.Services, func(name string) bool { return !isServiceName(name) }); i >= 0 {
		return e, outboard.Errorf(outboard.Invalid, op,
			"service %q: write its full name, as shop.v1.Orders, of letters, digits, \".\", \"_\", \"-\" and \"/\"", e.Services[i])
	}
	if i := slices.IndexFunc(e.Services, reserved); i >= 0 {
		return e, outboard.Errorf(outboard.Denied, op, "service %s is reserved for processes of the pool", e.Services[i])
	}
	e.Started = time.Now().UTC()
	return h.opts.Registry.Add(ctx, e)
}
