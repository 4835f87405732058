package shared

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

// maxMethods bounds the numbered methods of a lane.
const maxMethods = 4096

// A caller is this side's half of the lane that carries its own calls.
type caller struct {
	laneEnd
	maxMessage, maxCalls int
	pool                 sync.Pool // of *pending, for unary calls

	// The mutex guards the fields below.
	slots   []slot
	free    []uint32
	methods map[string]*method
	active  int            // calls whose callers have not received the end
	service map[string]int // calls in flight by service
	idle    chan struct{}  // not nil: no call may begin; closed when active is 0
}

// A slot is an entry of the table of calls in flight.
type slot struct {
	gen  uint32
	call *pending
}

// A method is sent by its number once the number is announced.
type method struct {
	number    uint32
	announced bool
}

// A pending is the caller's state of a call in flight.
type pending struct {
	stream
	service        string
	headerWaiter   waiter // for the response header
	headerReceived bool
	header         []byte

	// The outcome, once closed: from the peer, or a local error.
	outcome   []byte
	code      codes.Code
	hasStatus bool
	localErr  error
}

func (c *caller) open(conn *Conn, out int) {
	c.laneEnd.open(conn, out)
	c.handleDesc, c.onClose = c.handle, func() {}
	c.maxMessage, c.maxCalls = conn.options.MaxMessage, conn.options.MaxCalls
	c.methods, c.service = map[string]*method{}, map[string]int{}
	c.pool.New = func() any { return &pending{} }
}

// allocateCall allocates a slot for a call.
func (c *caller) allocateCall(ctx context.Context, p *pending, h *call.Head) error {
	if !c.conn.serves {
		return status.Error(codes.Unimplemented, "the peer serves no calls")
	}
	p.priority, p.service = h.Priority, h.Service()
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.idle != nil:
		return ErrFinished
	case c.closeErr != nil:
		return unsentError{c.closeErr}
	case c.service[p.service] >= c.maxCalls-c.maxCalls/4:
		return status.Errorf(codes.ResourceExhausted, "%d calls of %s are in flight on one connection: at most %d of one service", c.service[p.service], p.service, c.maxCalls-c.maxCalls/4)
	case !c.allocateSlot(p):
		return status.Errorf(codes.ResourceExhausted, "%d calls are in flight on one connection: at most %d", c.maxCalls, c.maxCalls)
	}
	c.service[p.service]++
	c.active++
	return nil
}

func (c *caller) allocateSlot(p *pending) bool {
	switch {
	case len(c.free) > 0:
		p.id.slot = c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
	case len(c.slots) < c.maxCalls:
		p.id.slot = uint32(len(c.slots))
		c.slots = append(c.slots, slot{})
	default:
		return false
	}
	at := &c.slots[p.id.slot]
	at.gen++
	at.call, p.id.gen = p, at.gen
	if p.e == nil {
		p.init(&c.laneEnd, p.id, c.maxMessage)
	}
	return true
}

// lookup returns a call that is in flight, or nil; the mutex is held.
func (c *caller) lookup(id callID) *pending {
	if id.slot >= uint32(len(c.slots)) || c.slots[id.slot].gen != id.gen {
		return nil
	}
	return c.slots[id.slot].call
}

// freeSlot removes a call from the table; the mutex is held.
func (c *caller) freeSlot(p *pending) {
	if c.lookup(p.id) != p {
		return
	}
	c.slots[p.id.slot].call = nil
	c.free = append(c.free, p.id.slot)
	if c.service[p.service]--; c.service[p.service] == 0 {
		delete(c.service, p.service)
	}
}

// start posts the first descriptor of a call. After an error nothing was posted.
func (c *caller) start(ctx context.Context, k kind, p *pending, h *call.Head, m *call.Message) error {
	d := desc{kind: k, call: p.id}
	var err error
	if d.extra, err = timeLeft(ctx); err != nil {
		return err
	}
	if h.Streaming {
		d.flags |= flagStreaming
	}
	if h.WaitForReady {
		d.flags |= flagWaitForReady
	}
	var data []byte
	if m != nil {
		data = m.Data
		if m.Compressed {
			d.flags |= flagCompressed
		}
	}
	var buffer [128]byte
	known, head := c.encodeMethod(&d, buffer[:0], h.Method)
	head = appendHead(head, h)
	if err := c.send(ctx, h.Priority, &d, head, data); err != nil {
		return c.unsentIfClosed(err)
	}
	if known == nil {
		return nil
	}
	c.mu.Lock()
	known.announced = true
	c.mu.Unlock()
	return nil
}

// unsentIfClosed returns the error of a descriptor that was not posted, as an unsentError if the end
// of the connection is the reason.
func (c *caller) unsentIfClosed(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeErr != nil && errors.Is(err, c.closeErr) {
		return unsentError{err}
	}
	return err
}

// encodeMethod writes the method into d: by its number, by its name together with the number
// that stands for it from now on, or by its name alone. It returns the method that becomes
// announced when d is posted.
func (c *caller) encodeMethod(d *desc, head []byte, name string) (*method, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.methods[name]
	if m == nil && len(c.methods) < maxMethods {
		m = &method{number: uint32(len(c.methods))}
		c.methods[name] = m
	}
	if m == nil {
		d.method = unnumbered
		return nil, appendString(head, name)
	}
	d.method = m.number
	if m.announced {
		return nil, head
	}
	d.flags |= flagDefine
	return m, appendString(head, name)
}

// timeLeft returns the time until the deadline of ctx in ns, as a descriptor carries it; 0: no
// deadline.
func timeLeft(ctx context.Context) (uint64, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return 0, context.DeadlineExceeded
	}
	return uint64(left), nil
}

// handle processes one descriptor for this side's calls. Only the reader calls it.
func (c *caller) handle(d *desc, slot unsafe.Pointer) error {
	switch d.kind {
	case kindReply, kindStatus, kindHeader, kindData, kindCredit:
	default:
		c.peerHeap.returnHeap(d)
		return outboard.Errorf(outboard.Protocol, "descriptor", "kind %d from a callee", d.kind)
	}
	var m *call.Message
	if d.kind == kindReply || d.kind == kindData {
		m = c.peerHeap.receive(d, slot)
	}
	head := c.peerHeap.copyHead(d, slot)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.lookup(d.call)
	if p == nil {
		m.Free()
		return nil
	}
	return c.deliver(p, d, head, m)
}

// deliver passes a descriptor's content to its call.
func (c *caller) deliver(p *pending, d *desc, head []byte, m *call.Message) error {
	switch d.kind {
	case kindData:
		p.receiveHeader(nil)
		return p.push(d, m)
	case kindCredit:
		return p.addCredit(d.extra)
	case kindHeader:
		if p.headerReceived {
			return outboard.Errorf(outboard.Protocol, "call", "a second header")
		}
		p.receiveHeader(head)
		return nil
	case kindReply:
		p.chunks.Push(chunk{m: m})
	default: // a status has no content
	}
	p.outcome, p.code, p.hasStatus = head, codes.Code(d.code), d.kind == kindStatus
	c.finish(p)
	return nil
}

func (p *pending) receiveHeader(header []byte) {
	if !p.headerReceived {
		p.headerReceived, p.header = true, header
		if p.headerWaiter.wake != nil {
			p.e.markReady(&p.headerWaiter)
		}
	}
}

// finish marks a call as ended; the mutex is held.
func (c *caller) finish(p *pending) {
	c.freeSlot(p)
	p.closed, p.over = true, true
	p.e.markReady(&p.recv)
	p.e.markReady(&p.send)
	if p.headerWaiter.wake != nil {
		p.e.markReady(&p.headerWaiter)
	}
}

// abandon ends a call locally, and cancels it at the callee if it is in flight.
func (c *caller) abandon(p *pending, why error) {
	c.mu.Lock()
	live := !p.over
	if live {
		p.localErr = why
		c.finish(p)
		p.discard()
	}
	live = live && c.closeErr == nil
	c.mu.Unlock()
	if live {
		c.cancel(p.id, p.priority)
	}
}

// cancel sends the cancellation of a call to the callee, from a new goroutine if that would block. The
// goroutine that ends a call with its context holds no reference to the region.
func (c *caller) cancel(id callID, p call.Priority) {
	if !c.region.tryRetain() {
		return // the connection has ended, and with it the call
	}
	defer c.region.release()
	d := desc{kind: kindCancel, call: id}
	if err := c.send(nil, p, &d, nil, nil); errors.Is(err, errWouldBlock) { //nolint:staticcheck // nil: do not block
		c.conn.spawn(func() { _ = c.send(context.Background(), p, &d, nil, nil) }) // an error means that the connection has ended
	}
}

// result returns the outcome of a closed call.
func (p *pending) result() (call.End, error) {
	if p.localErr != nil {
		return call.End{}, p.localErr
	}
	e, err, broken := scanOutcome(p.outcome, p.code, p.hasStatus)
	if broken != nil {
		return e, p.e.closeOnViolation(broken)
	}
	if p.header != nil {
		s := &scanner{rest: string(p.header)}
		e.Header = s.metadata()
		if s.end() != nil {
			return e, p.e.closeOnViolation(s.err)
		}
	}
	return e, err
}

// unary makes a unary call.
func (c *caller) unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	p := c.pool.Get().(*pending)
	if err := c.allocateCall(ctx, p, h); err != nil {
		freeIfSent(request, err)
		return nil, call.End{}, inStatus(err)
	}
	defer c.endCall()
	if err := c.start(ctx, kindCall, p, h, request); err != nil {
		freeIfSent(request, err)
		c.abandon(p, inStatus(err))
		c.recycle(p)
		return nil, call.End{}, inStatus(err)
	}
	request.Free()
	if err := c.await(ctx, &p.recv); err != nil {
		c.abandon(p, inStatus(err))
	}
	m, end, err := c.awaitResult(ctx, p)
	c.recycle(p)
	return m, end, err
}

// recycle clears the state of a call, and returns it to the pool.
func (c *caller) recycle(p *pending) {
	recv, send := p.recv, p.send
	recv.ready, send.ready = false, false
	p.chunks.Clear()
	*p = pending{stream: stream{e: p.e, limit: p.limit, credit: window, recv: recv, send: send, chunks: p.chunks}}
	c.pool.Put(p)
}

// awaitResult waits for the end of a call whose first response part has arrived.
func (c *caller) awaitResult(ctx context.Context, p *pending) (*call.Message, call.End, error) {
	m, err := p.next(ctx)
	if err == nil {
		err = p.expectEnd(ctx)
	}
	if !errors.Is(err, io.EOF) {
		c.abandon(p, inStatus(err))
	}
	end, err := p.result()
	if err == nil && m == nil {
		err = status.Error(codes.Internal, "the callee sent no message")
	}
	if err != nil {
		m.Free()
		return nil, end, err
	}
	return m, end, nil
}

// expectEnd returns io.EOF when no message follows.
func (s *stream) expectEnd(ctx context.Context) error {
	c, err := s.pop(ctx)
	if err != nil {
		return err
	}
	c.m.Free()
	return status.Error(codes.Internal, "the callee sent more than one message")
}

func inStatus(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// unaryLarge is unary for a request that exceeds a heap block.
func (c *caller) unaryLarge(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	s, err := c.openStream(ctx, h)
	if err != nil {
		freeIfSent(request, err)
		return nil, call.End{}, err
	}
	if err = s.Send(request); err == nil {
		err = s.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.abandon(s.p, inStatus(err))
	}
	m, end, err := c.awaitResult(ctx, s.p)
	s.finished()
	return m, end, err
}

// decodeMetadata decodes a header that arrived in a descriptor of its own.
func decodeMetadata(b []byte) (metadata.MD, error) {
	if b == nil {
		return nil, nil //nolint:nilnil // no metadata is no error
	}
	s := &scanner{rest: string(b)}
	md := s.metadata()
	return md, s.end()
}
