package shared

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

// maxIdle is how many goroutines of a connection wait for a call to serve.
const maxIdle = 8

// A callee is our half of the lane that the peer's calls take.
type callee struct {
	end
	handler call.Handler
	unary   call.UnaryHandler // nil when the handler has only streams
	inline  bool
	limit   int
	most    int
	tenant  string
	peer    string
	//nolint:containedctx // the context of calls that have nothing of their own; it ends with the connection
	base   context.Context
	cancel context.CancelCauseFunc

	methods []string     // by number; only the reader uses these
	heads   []*call.Head // of calls that say nothing else

	// The rest is under the mutex.
	calls map[callID]*served
	idle  []chan bool // goroutines that would be the reader
	shift shift
}

func (c *callee) open(conn *Conn, out int) {
	c.end.open(conn, out)
	o := &conn.options
	c.dispatch, c.buried = c.take, c.ended
	c.handler, c.inline, c.limit, c.most = o.Handler, o.Inline, o.MaxMessage, o.MaxCalls
	c.unary, _ = o.Handler.(call.UnaryHandler)
	c.tenant, c.peer = o.Tenant(conn.peer), conn.peer.String()
	c.calls = map[callID]*served{}
	base := context.WithValue(context.Background(), lenderKey{}, Lender(&c.end))
	c.base, c.cancel = context.WithCancelCause(base)
}

// ended is called with the mutex held.
func (c *callee) ended() {
	c.cancel(c.dead)
	for _, s := range c.calls {
		complete := s.closed && len(s.chunks) == 0
		s.drop()
		s.closed = complete // no handler may take what is lost for the caller's end
	}
	for _, idle := range c.idle {
		close(idle)
	}
	c.idle = nil
}

// serve is the life of a goroutine that serves calls. It begins as the reader; it
// leaves that role to another when it has got a call that may block for long.
func (c *callee) serve() {
	for {
		s := c.next()
		if s == nil {
			return
		}
		if c.keep(s) {
			s.run()
			if c.kept() {
				continue
			}
		} else {
			c.pass()
			s.run()
		}
		if !c.rest() {
			return
		}
	}
}

// next reads the ring until there is a call to serve, or the connection has ended.
func (c *callee) next() *served {
	for {
		old := c.bell.Now()
		c.drain()
		if s := c.job; s != nil {
			c.job = nil
			return s
		}
		c.mu.Lock()
		dead := c.dead
		c.mu.Unlock()
		if dead != nil {
			return nil
		}
		c.bell.Sleep(&c.waits, old, c.conn.options.patience)
	}
}

// pass makes another goroutine the reader.
func (c *callee) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passLocked()
}

func (c *callee) passLocked() {
	if c.dead != nil {
		return
	}
	if n := len(c.idle); n > 0 {
		c.idle[n-1] <- true
		c.idle = c.idle[:n-1]
		return
	}
	c.conn.spawn(c.serve)
}

// rest waits until this goroutine is the reader again; it is false when it is not
// needed any more.
func (c *callee) rest() bool {
	turn := make(chan bool, 1)
	c.mu.Lock()
	if c.dead != nil || len(c.idle) >= maxIdle {
		c.mu.Unlock()
		return false
	}
	c.idle = append(c.idle, turn)
	c.mu.Unlock()
	return <-turn
}

// take is the reader's work on the lane of the peer's calls.
func (c *callee) take(d *desc, slot unsafe.Pointer) error {
	switch d.kind {
	case kindCall:
		return c.takeCall(d, slot)
	case kindOpen:
		h, deadline, err := c.head(d, slot)
		if err != nil {
			return err
		}
		return c.admit(d, h, deadline, nil)
	case kindData:
		return c.takeData(d, slot)
	case kindEnd, kindCancel, kindCredit:
		c.discard(d)
		return c.takeWord(d)
	default:
		c.discard(d)
		return outboard.Errorf(outboard.Protocol, "descriptor", "kind %d from a caller", d.kind)
	}
}

func (c *callee) takeCall(d *desc, slot unsafe.Pointer) error {
	h, deadline, err := c.head(d, slot)
	if err != nil {
		return err
	}
	m := c.receive(d, slot)
	if !c.inline || c.unary == nil || h.Streaming {
		return c.admit(d, h, deadline, m)
	}
	ctx, finish := withDeadline(c.base, deadline)
	response, end, err := c.unary.ServeUnary(ctx, h, m)
	finish()
	c.answer(d.call, h, response, end, err)
	return nil
}

// head is who calls what, and until when. It takes what d says of it.
func (c *callee) head(d *desc, slot unsafe.Pointer) (*call.Head, time.Time, error) {
	var deadline time.Time
	if d.extra != 0 {
		deadline = time.Now().Add(time.Duration(min(d.extra, 1<<62)))
	}
	if d.flags&(flagDefine|flagStreaming) == 0 && d.headLen == 0 && d.extra == 0 && d.method < uint32(len(c.heads)) && c.heads[d.method] != nil {
		return c.heads[d.method], deadline, nil
	}
	s := &scanner{rest: string(c.header(d, slot))}
	method, err := c.method(d, s)
	if err != nil {
		return nil, deadline, err
	}
	h := &call.Head{Method: method, Streaming: d.flags&flagStreaming != 0, Deadline: deadline}
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

// method finds the name that a descriptor means, and notes its number.
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
		return "", outboard.Errorf(outboard.Protocol, "head", "method number %d was never told", d.method)
	}
	return c.methods[d.method], nil
}

func (c *callee) define(number uint32, name string) error {
	if number >= maxMethods {
		return outboard.Errorf(outboard.Protocol, "head", "method number %d: %d are allowed", number, maxMethods)
	}
	for uint32(len(c.methods)) <= number {
		c.methods, c.heads = append(c.methods, ""), append(c.heads, nil)
	}
	if old := c.methods[number]; old != "" && old != name {
		return outboard.Errorf(outboard.Protocol, "head", "method number %d is told twice", number)
	}
	c.methods[number] = name
	c.heads[number] = &call.Head{Method: name, Tenant: c.tenant, Peer: c.peer}
	return nil
}

// admit makes a call that has a goroutine the reader's next job, or refuses it.
func (c *callee) admit(d *desc, h *call.Head, deadline time.Time, m *call.Message) error {
	s, err := c.register(d.call, h, deadline)
	switch {
	case err != nil:
		m.Free()
		return err
	case s == nil:
		m.Free()
		c.answer(d.call, h, nil, call.End{}, status.Errorf(codes.ResourceExhausted, "%d calls in flight are allowed", c.most))
		return nil
	}
	if m != nil {
		s.chunks, s.closed, s.single = append(s.chunks, chunk{m: m}), true, true
	}
	c.job = s
	return nil
}

// register notes a call; nil when there are too many.
func (c *callee) register(id callID, h *call.Head, deadline time.Time) (*served, error) {
	s := &served{c: c, head: h}
	s.init(&c.end, id, c.limit)
	s.priority = h.Priority
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] != nil {
		return nil, outboard.Errorf(outboard.Protocol, "call", "place %d of generation %d is taken", id.slot, id.gen)
	}
	if len(c.calls) >= c.most {
		return nil, nil //nolint:nilnil // refused, which is no breach
	}
	if deadline.IsZero() {
		s.ctx, s.cancel = context.WithCancel(c.base)
	} else {
		s.ctx, s.cancel = context.WithDeadline(c.base, deadline)
	}
	c.calls[id] = s
	return s, nil
}

func (c *callee) takeData(d *desc, slot unsafe.Pointer) error {
	m := c.receive(d, slot)
	if d.head.unit != nowhere {
		c.theirs.give(d.head)
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

func (c *callee) takeWord(d *desc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.calls[d.call]
	switch {
	case s == nil:
	case d.kind == kindCredit:
		return s.grant(d.extra)
	case d.kind == kindCancel:
		s.cancelled = true
		s.over = true
		s.e.satisfy(&s.send)
		s.cancel()
	case s.closed:
		return outboard.Errorf(outboard.Protocol, "call", "a second end")
	default:
		s.closed = true
		s.e.satisfy(&s.recv)
	}
	return nil
}

// answer ends a call that has no goroutine: at once, or, where there is no room,
// by one.
func (c *callee) answer(id callID, h *call.Head, response *call.Message, e call.End, err error) {
	if err == nil && response != nil && len(response.Data) > c.heap.maxBlock() {
		c.conn.spawn(func() { c.answerLarge(id, h, response, e) })
		return
	}
	sent := c.reply(nil, id, h.Priority, response, e, err) //nolint:staticcheck // nil says that we don't wait
	if !errors.Is(sent, errCrowded) {
		response.Free()
		return
	}
	c.conn.spawn(func() {
		_ = c.reply(c.base, id, h.Priority, response, e, err) // fails with the connection
		response.Free()
	})
}

// answerLarge is for a response that is larger than a piece of the heap.
func (c *callee) answerLarge(id callID, h *call.Head, response *call.Message, e call.End) {
	s, err := c.register(id, h, time.Time{})
	if err != nil || s == nil {
		response.Free()
		return
	}
	s.finish(response, e, nil)
}

// reply posts a call's end: with its only message, or with a status.
func (c *callee) reply(ctx context.Context, id callID, p call.Priority, response *call.Message, e call.End, err error) error {
	d := desc{kind: kindReply, call: id}
	var room [128]byte
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
	err = c.send(ctx, p, &d, appendOutcome(room[:0], e, nil), data)
	return c.explain(ctx, id, p, err)
}

func (c *callee) sendStatus(ctx context.Context, id callID, p call.Priority, e call.End, err error) error {
	s := statusOf(err)
	d := desc{kind: kindStatus, call: id, code: uint16(s.Code())}
	err = c.send(ctx, p, &d, appendOutcome(nil, e, s), nil)
	return c.explain(ctx, id, p, err)
}

// explain ends a call whose own end can't be said, because it is too long.
func (c *callee) explain(ctx context.Context, id callID, p call.Priority, err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok || s.Code() != codes.ResourceExhausted {
		return err
	}
	d := desc{kind: kindStatus, call: id, code: uint16(codes.ResourceExhausted)}
	return c.send(ctx, p, &d, appendOutcome(nil, call.End{}, status.New(s.Code(), s.Message())), nil)
}

// statusOf is what a handler's error says.
func statusOf(err error) *status.Status {
	if s, ok := status.FromError(err); ok {
		return s
	}
	s := status.FromContextError(err)
	return s
}
