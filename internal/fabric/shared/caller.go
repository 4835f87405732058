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

// maxMethods is how many methods of a lane have a number.
const maxMethods = 4096

// A caller is our half of the lane that our own calls take.
type caller struct {
	end
	limit, most int
	pool        sync.Pool // of *pending, for calls of one message

	// The rest is under the mutex.
	places  []place
	free    []uint32
	methods map[string]*method
	begun   int           // calls whose callers have not had their end
	quiet   chan struct{} // not nil: no more calls begin; closed when begun is 0
}

// A place in the table of calls in flight.
type place struct {
	gen uint32
	p   *pending
}

// A method is known to the peer by its number once told.
type method struct {
	number uint32
	told   bool
}

// A pending is a call in flight, as its caller sees it.
type pending struct {
	stream
	first   waiter // for the callee's first words
	greeted bool
	header  []byte

	// The call's end, once closed: what the peer said, or what ended it here.
	outcome []byte
	code    codes.Code
	text    bool
	local   error
}

func (c *caller) open(conn *Conn, out int) {
	c.end.open(conn, out)
	c.dispatch, c.buried = c.take, func() {}
	c.limit, c.most = conn.options.MaxMessage, conn.options.MaxCalls
	c.methods = map[string]*method{}
	c.pool.New = func() any { return &pending{} }
}

// begin finds a place for a call.
func (c *caller) begin(ctx context.Context, p *pending, h *call.Head) error {
	if !c.conn.serves {
		return status.Error(codes.Unimplemented, "the peer serves no calls")
	}
	p.priority = h.Priority
	return c.get(ctx, callRoom, h.Priority, func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case c.quiet != nil:
			return false, ErrFinished
		case c.dead != nil:
			return false, c.dead
		}
		if !c.settleIn(p) {
			return false, nil
		}
		c.begun++
		return true, nil
	})
}

func (c *caller) settleIn(p *pending) bool {
	switch {
	case len(c.free) > 0:
		p.id.slot = c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
	case len(c.places) < c.most:
		p.id.slot = uint32(len(c.places))
		c.places = append(c.places, place{})
	default:
		return false
	}
	at := &c.places[p.id.slot]
	at.gen++
	at.p, p.id.gen = p, at.gen
	if p.e == nil {
		p.init(&c.end, p.id, c.limit)
	}
	return true
}

// lookup finds a call that is still in flight; the mutex is held.
func (c *caller) lookup(id callID) *pending {
	if id.slot >= uint32(len(c.places)) || c.places[id.slot].gen != id.gen {
		return nil
	}
	return c.places[id.slot].p
}

// retire takes a call out of the table; the mutex is held.
func (c *caller) retire(p *pending) {
	if c.lookup(p.id) != p {
		return
	}
	c.places[p.id.slot].p = nil
	c.free = append(c.free, p.id.slot)
	if c.hungry.Load() > 0 {
		c.feedLocked()
	}
}

// start posts a call's first descriptor.
func (c *caller) start(ctx context.Context, k kind, p *pending, h *call.Head, m *call.Message) error {
	d := desc{kind: k, call: p.id}
	var err error
	if d.extra, err = timeLeft(ctx); err != nil {
		return err
	}
	if h.Streaming {
		d.flags |= flagStreaming
	}
	var data []byte
	if m != nil {
		data = m.Data
		if m.Compressed {
			d.flags |= flagCompressed
		}
	}
	var room [128]byte
	known, head := c.name(&d, room[:0], h.Method)
	head = appendHead(head, h)
	if err := c.send(ctx, h.Priority, &d, head, data); err != nil || known == nil {
		return err
	}
	c.mu.Lock()
	known.told = true
	c.mu.Unlock()
	return nil
}

// name says the method in d: by its number, by its name and its number from now
// on, or by its name alone. It returns the method that is to be marked as told.
func (c *caller) name(d *desc, head []byte, name string) (*method, []byte) {
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
	if m.told {
		return nil, head
	}
	d.flags |= flagDefine
	return m, appendString(head, name)
}

// timeLeft is what a descriptor says of the deadline, 0 when there is none.
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

// take is the reader's work on the lane of our own calls.
func (c *caller) take(d *desc, slot unsafe.Pointer) error {
	switch d.kind {
	case kindReply, kindStatus, kindHeader, kindData, kindCredit:
	default:
		c.discard(d)
		return outboard.Errorf(outboard.Protocol, "descriptor", "kind %d from a callee", d.kind)
	}
	var m *call.Message
	if d.kind == kindReply || d.kind == kindData {
		m = c.receive(d, slot)
	}
	head := c.header(d, slot)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.lookup(d.call)
	if p == nil {
		m.Free()
		return nil
	}
	return c.tell(p, d, head, m)
}

// tell gives a call what came for it.
func (c *caller) tell(p *pending, d *desc, head []byte, m *call.Message) error {
	switch d.kind {
	case kindData:
		p.greet(nil)
		return p.push(d, m)
	case kindCredit:
		return p.grant(d.extra)
	case kindHeader:
		if p.greeted {
			return outboard.Errorf(outboard.Protocol, "call", "a second header")
		}
		p.greet(head)
		return nil
	case kindReply:
		p.chunks = append(p.chunks, chunk{m: m})
	default: // a status brings nothing more
	}
	p.outcome, p.code, p.text = head, codes.Code(d.code), d.kind == kindStatus
	c.finish(p)
	return nil
}

func (p *pending) greet(header []byte) {
	if !p.greeted {
		p.greeted, p.header = true, header
		if p.first.wake != nil {
			p.e.satisfy(&p.first)
		}
	}
}

// finish marks a call as over; the mutex is held.
func (c *caller) finish(p *pending) {
	c.retire(p)
	p.closed, p.over = true, true
	p.e.satisfy(&p.recv)
	p.e.satisfy(&p.send)
	if p.first.wake != nil {
		p.e.satisfy(&p.first)
	}
}

// abandon ends a call from here, for the callee too when it is still in flight.
func (c *caller) abandon(p *pending, why error) {
	c.mu.Lock()
	live := !p.over
	if live {
		p.local = why
		c.finish(p)
		p.drop()
	}
	live = live && c.dead == nil
	c.mu.Unlock()
	if live {
		c.cancel(p.id, p.priority)
	}
}

// cancel tells the callee, now or, where there is no room, soon.
func (c *caller) cancel(id callID, p call.Priority) {
	d := desc{kind: kindCancel, call: id}
	if err := c.send(nil, p, &d, nil, nil); errors.Is(err, errCrowded) { //nolint:staticcheck // nil says that we don't wait
		c.conn.spawn(func() { _ = c.send(context.Background(), p, &d, nil, nil) }) // fails with the connection
	}
}

// result is how a call that is closed ended.
func (p *pending) result() (call.End, error) {
	if p.local != nil {
		return call.End{}, p.local
	}
	e, err, broken := scanOutcome(p.outcome, p.code, p.text)
	if broken != nil {
		return e, p.e.judge(broken)
	}
	if p.header != nil {
		s := &scanner{rest: string(p.header)}
		e.Header = s.metadata()
		if s.end() != nil {
			return e, p.e.judge(s.err)
		}
	}
	return e, err
}

// unary makes a call of one message each way.
func (c *caller) unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	p := c.pool.Get().(*pending)
	if err := c.begin(ctx, p, h); err != nil {
		request.Free()
		return nil, call.End{}, inStatus(err)
	}
	defer c.part()
	err := c.start(ctx, kindCall, p, h, request)
	request.Free()
	if err == nil {
		err = c.await(ctx, &p.recv)
	}
	if err != nil {
		c.abandon(p, inStatus(err))
	}
	m, end, err := c.conclude(ctx, p)
	c.recycle(p)
	return m, end, err
}

// recycle keeps a call that nobody refers to any more.
func (c *caller) recycle(p *pending) {
	recv, send := p.recv, p.send
	recv.ready, send.ready = false, false
	*p = pending{stream: stream{e: p.e, limit: p.limit, credit: window, recv: recv, send: send, chunks: p.chunks[:0]}}
	c.pool.Put(p)
}

// conclude waits for the end of a call of which something has come.
func (c *caller) conclude(ctx context.Context, p *pending) (*call.Message, call.End, error) {
	m, err := p.next(ctx)
	if err == nil {
		err = p.last(ctx)
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

// last returns io.EOF when no message follows.
func (s *stream) last(ctx context.Context) error {
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

// unaryLarge is unary for a request that is larger than a piece of the heap.
func (c *caller) unaryLarge(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	s, err := c.openStream(ctx, h)
	if err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	if err = s.Send(request); err == nil {
		err = s.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.abandon(s.p, inStatus(err))
	}
	m, end, err := c.conclude(ctx, s.p)
	s.finished()
	return m, end, err
}

// metadataOf reads a header that came by itself.
func metadataOf(b []byte) (metadata.MD, error) {
	if b == nil {
		return nil, nil //nolint:nilnil // no metadata is no error
	}
	s := &scanner{rest: string(b)}
	md := s.metadata()
	return md, s.end()
}
