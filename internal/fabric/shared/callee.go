package shared

import (
	"context"
	"errors"
	"strings"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

// maxIdle bounds the goroutines of a connection that wait for the next call.
const maxIdle = 8

// A callee is this side's half of the lane that carries the peer's calls.
type callee struct {
	laneEnd
	handler    call.Handler
	unary      call.UnaryHandler // nil: the handler serves streams only
	inline     bool
	maxMessage int
	maxCalls   int
	tenant     string
	peer       string
	//nolint:containedctx // the context of calls that have nothing of their own; it ends with the connection
	base   context.Context
	cancel context.CancelCauseFunc

	methods    []string     // names by number; owned by the reader
	plainHeads []*call.Head // heads of calls without metadata, by method number

	// The mutex guards the fields below.
	calls      map[callID]*served
	idle       []chan bool // goroutines that wait for the reader's role
	readerRole readerRole
}

func (c *callee) open(conn *Conn, out int) {
	c.laneEnd.open(conn, out)
	o := &conn.options
	c.handleDesc, c.onClose = c.handle, c.cancelCalls
	c.quiet = true // a program that makes no calls costs no thread
	c.handler, c.inline, c.maxMessage, c.maxCalls = o.Handler, o.Inline, o.MaxMessage, o.MaxCalls
	c.unary, _ = o.Handler.(call.UnaryHandler)
	if c.peer = conn.peer.String(); !o.Trust {
		// If a trusted peer forwards a call without a tenant, its tenant is unknown: it is not the
		// peer, whose own calls have more rights.
		c.tenant = o.Tenant(conn.peer)
	}
	c.calls = map[callID]*served{}
	base := context.WithValue(context.Background(), lenderKey{}, Lender(&c.laneEnd))
	c.base, c.cancel = context.WithCancelCause(base)
}

// cancelCalls runs when the lane closes, with the mutex held.
func (c *callee) cancelCalls() {
	c.cancel(c.closeErr)
	for _, s := range c.calls {
		complete := s.closed && s.chunks.Len() == 0
		s.discard()
		s.closed = complete // messages were lost: the handler must not see a clean end
	}
	for _, idle := range c.idle {
		close(idle)
	}
	c.idle = nil
}

// serve is the loop of a goroutine that serves calls. It starts in the reader's role, and passes
// the role on when its call may block.
func (c *callee) serve() {
	for {
		s := c.next()
		if s == nil {
			return
		}
		if c.lendRole(s) {
			s.run()
			if c.reclaimRole() {
				continue
			}
		} else {
			c.passRole()
			s.run()
		}
		if !c.awaitRole() {
			return
		}
	}
}

// next reads the ring until there is a call to serve. It returns nil if the connection has ended.
func (c *callee) next() *served {
	for {
		old := c.bell.Now()
		c.drain()
		if s := c.job; s != nil {
			c.job = nil
			return s
		}
		c.mu.Lock()
		dead := c.closeErr
		c.mu.Unlock()
		if dead != nil {
			return nil
		}
		c.sleep(old)
	}
}

// passRole makes another goroutine the reader.
func (c *callee) passRole() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passRoleLocked()
}

func (c *callee) passRoleLocked() {
	if c.closeErr != nil {
		return
	}
	if n := len(c.idle); n > 0 {
		c.idle[n-1] <- true
		c.idle = c.idle[:n-1]
		return
	}
	c.conn.spawn(c.serve)
}

// awaitRole waits until this goroutine is the reader again. It returns false if the goroutine is no
// longer needed.
func (c *callee) awaitRole() bool {
	turn := make(chan bool, 1)
	c.mu.Lock()
	if c.closeErr != nil || len(c.idle) >= maxIdle {
		c.mu.Unlock()
		return false
	}
	c.idle = append(c.idle, turn)
	c.mu.Unlock()
	return <-turn
}

// handle processes one descriptor of the peer's calls. Only the reader calls it.
func (c *callee) handle(d *desc, slot unsafe.Pointer) error {
	switch d.kind {
	case kindCall:
		return c.handleCall(d, slot)
	case kindOpen:
		h, deadline, err := c.head(d, slot)
		if err != nil {
			return err
		}
		return c.admit(d, h, deadline, nil)
	case kindData:
		return c.handleData(d, slot)
	case kindEnd, kindCancel, kindCredit:
		c.peerHeap.returnHeap(d)
		return c.handleControl(d)
	default:
		c.peerHeap.returnHeap(d)
		return outboard.Errorf(outboard.Protocol, "descriptor", "kind %d from a caller", d.kind)
	}
}

func (c *callee) handleCall(d *desc, slot unsafe.Pointer) error {
	h, deadline, err := c.head(d, slot)
	if err != nil {
		return err
	}
	m := c.peerHeap.receive(d, slot)
	if !c.inline || c.unary == nil || h.Streaming {
		return c.admit(d, h, deadline, m)
	}
	ctx, finish := withDeadline(c.base, deadline)
	response, end, err := c.unary.ServeUnary(ctx, h, m)
	finish()
	c.respond(d.call, h, response, end, err)
	return nil
}

// head decodes the call's head and deadline, and returns the head's block to the peer's heap.
func (c *callee) head(d *desc, slot unsafe.Pointer) (*call.Head, time.Time, error) {
	var deadline time.Time
	if d.extra != 0 {
		deadline = time.Now().Add(time.Duration(min(d.extra, 1<<62)))
	}
	if d.flags&(flagDefine|flagStreaming|flagWaitForReady) == 0 && d.headLen == 0 && d.extra == 0 && d.method < uint32(len(c.plainHeads)) && c.plainHeads[d.method] != nil {
		return c.plainHeads[d.method], deadline, nil
	}
	s := &scanner{rest: string(c.peerHeap.copyHead(d, slot))}
	method, err := c.method(d, s)
	if err != nil {
		return nil, deadline, err
	}
	h := &call.Head{Method: method, Streaming: d.flags&flagStreaming != 0, WaitForReady: d.flags&flagWaitForReady != 0, Deadline: deadline}
	if err := scanHead(s, h); err != nil {
		return nil, deadline, err
	}
	if !c.conn.options.Trust || h.Tenant == "" {
		h.Tenant = c.tenant
	}
	if !c.conn.options.Trust || h.Peer == "" {
		h.Peer = c.peer
	}
	return h, deadline, nil
}

// method resolves the method of a descriptor, and records a new number.
func (c *callee) method(d *desc, s *scanner) (string, error) {
	if d.method == unnumbered || d.flags&flagDefine != 0 {
		name := s.string()
		if s.err != nil || !validMethod(name) {
			return "", outboard.Errorf(outboard.Protocol, "head", "%q is no method", name[:min(len(name), 40)])
		}
		if d.method == unnumbered {
			return name, nil
		}
		return name, c.define(d.method, name)
	}
	if d.method >= uint32(len(c.methods)) || c.methods[d.method] == "" {
		return "", outboard.Errorf(outboard.Protocol, "head", "method number %d was never defined", d.method)
	}
	return c.methods[d.method], nil
}

func (c *callee) define(number uint32, name string) error {
	if number >= maxMethods {
		return outboard.Errorf(outboard.Protocol, "head", "method number %d: %d are allowed", number, maxMethods)
	}
	for uint32(len(c.methods)) <= number {
		c.methods, c.plainHeads = append(c.methods, ""), append(c.plainHeads, nil)
	}
	if old := c.methods[number]; old != "" && old != name {
		return outboard.Errorf(outboard.Protocol, "head", "method number %d is defined twice", number)
	}
	c.methods[number] = name
	c.plainHeads[number] = &call.Head{Method: name, Tenant: c.tenant, Peer: c.peer}
	return nil
}

// admit makes a call that needs a goroutine the reader's next job, or refuses it.
func (c *callee) admit(d *desc, h *call.Head, deadline time.Time, m *call.Message) error {
	s, err := c.register(d.call, h, deadline)
	switch {
	case err != nil:
		m.Free()
		return err
	case s == nil:
		m.Free()
		c.respond(d.call, h, nil, call.End{}, status.Errorf(codes.ResourceExhausted, "at most %d calls may be in flight on one connection", c.maxCalls))
		return nil
	}
	if m != nil {
		s.chunks.Push(chunk{m: m})
		s.closed, s.single = true, true
	}
	c.job = s
	return nil
}

// register adds a call to the table. It returns nil if the table is full.
func (c *callee) register(id callID, h *call.Head, deadline time.Time) (*served, error) {
	s := &served{c: c, head: h}
	s.init(&c.laneEnd, id, c.maxMessage)
	s.priority = h.Priority
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] != nil {
		return nil, outboard.Errorf(outboard.Protocol, "call", "slot %d of generation %d is in use", id.slot, id.gen)
	}
	if len(c.calls) >= c.maxCalls {
		return nil, nil //nolint:nilnil // refused, which is not a violation
	}
	if deadline.IsZero() {
		s.ctx, s.cancel = context.WithCancel(c.base)
	} else {
		s.ctx, s.cancel = context.WithDeadline(c.base, deadline)
	}
	c.calls[id] = s
	return s, nil
}

func (c *callee) handleData(d *desc, slot unsafe.Pointer) error {
	m := c.peerHeap.receive(d, slot)
	if d.head.unit != inSlot {
		c.peerHeap.free(d.head)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.calls[d.call]
	if s == nil {
		m.Free()
		return nil
	}
	return s.push(d, m)
}

func (c *callee) handleControl(d *desc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.calls[d.call]
	switch {
	case s == nil:
	case d.kind == kindCredit:
		return s.addCredit(d.extra)
	case d.kind == kindCancel:
		s.cancelled = true
		s.over = true
		s.e.markReady(&s.send)
		s.cancel()
	case s.closed:
		return outboard.Errorf(outboard.Protocol, "call", "a second end")
	default:
		s.closed = true
		s.e.markReady(&s.recv)
	}
	return nil
}

// respond ends a call that has no goroutine: at once or, if that would block, from a new goroutine.
// It frees the response.
func (c *callee) respond(id callID, h *call.Head, response *call.Message, e call.End, err error) {
	large := err == nil && response != nil && len(response.Data) > c.heap.maxBlock()
	if !large {
		sent := c.reply(nil, id, h.Priority, response, e, err) //nolint:staticcheck // nil: do not block
		if !errors.Is(sent, errWouldBlock) {
			response.Free()
			return
		}
	}
	spawned := c.conn.spawn(func() {
		if large {
			c.respondLarge(id, h, response, e)
			return
		}
		_ = c.reply(c.base, id, h.Priority, response, e, err) // an error means that the connection has ended
		response.Free()
	})
	if !spawned {
		response.Free()
	}
}

// respondLarge sends a response that exceeds a heap block.
func (c *callee) respondLarge(id callID, h *call.Head, response *call.Message, e call.End) {
	s, err := c.register(id, h, time.Time{})
	if err != nil || s == nil {
		response.Free()
		return
	}
	s.finish(response, e, nil)
}

// reply posts the end of a call: with its only message, or with a status.
func (c *callee) reply(ctx context.Context, id callID, p call.Priority, response *call.Message, e call.End, err error) error {
	d := desc{kind: kindReply, call: id}
	var buffer [128]byte
	if err != nil {
		return c.sendStatus(ctx, id, p, e, err)
	}
	var data []byte
	if response != nil {
		if data, err = response.Bytes(); err != nil {
			return c.sendStatus(ctx, id, p, call.End{}, status.Error(codes.Internal, err.Error()))
		}
		if response.Compressed {
			d.flags |= flagCompressed
		}
	}
	err = c.send(ctx, p, &d, appendOutcome(buffer[:0], e, nil), data)
	return c.reportTooLong(ctx, id, p, nil, err)
}

func (c *callee) sendStatus(ctx context.Context, id callID, p call.Priority, e call.End, err error) error {
	s := statusOf(err)
	d := desc{kind: kindStatus, call: id, code: uint16(s.Code())}
	err = c.send(ctx, p, &d, appendOutcome(nil, e, s), nil)
	return c.reportTooLong(ctx, id, p, s, err)
}

// reportTooLong replaces an end that exceeds the limit of a head by a short status. A call that
// failed keeps its code and the beginning of its message.
func (c *callee) reportTooLong(ctx context.Context, id callID, p call.Priority, ended *status.Status, err error) error {
	if !errors.Is(err, errHeadTooLong) {
		return err
	}
	s := status.New(codes.ResourceExhausted, errHeadTooLong.Error())
	if ended.Code() != codes.OK {
		s = status.New(ended.Code(), truncate(ended.Message())+" (message, details or metadata exceed the limit of 64 KiB)")
	}
	d := desc{kind: kindStatus, call: id, code: uint16(s.Code())}
	return c.send(ctx, p, &d, appendOutcome(nil, call.End{}, s), nil)
}

// maxText is the length in bytes to which a status message is cut if it cannot be sent whole.
const maxText = 16 << 10

func truncate(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "")
}

// statusOf converts a handler's error.
func statusOf(err error) *status.Status {
	if s, ok := status.FromError(err); ok {
		return s
	}
	s := status.FromContextError(err)
	return s
}
