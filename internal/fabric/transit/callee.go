package transit

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// Callees holds the streams that a server serves and that can move. The zero value is ready to use.
type Callees struct {
	mu  sync.Mutex
	all map[string]*callee // by name
}

// Serve serves a leg of a stream that has a name, and returns when the leg has ended. The
// first leg starts handle, in a goroutine that may outlast the leg.
func (r *Callees) Serve(in call.ServerStream, handle func(call.ServerStream) error) error {
	at := parsePosition(in.Head().Metadata)
	l := &inbound{ServerStream: in, empty: make(chan struct{}), done: make(chan struct{})}
	if IsMove(in.Head()) {
		return r.resume(l, at)
	}
	c := newCallee(l, at)
	if !r.add(c) {
		return handle(in) // the name is in use: this stream can't move
	}
	go func() {
		err := handle(c)
		r.remove(c)
		c.finish(err)
	}()
	<-l.done
	return l.err
}

func (r *Callees) add(c *callee) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*callee{}
	}
	if c.name == "" || r.all[c.name] != nil {
		c.unwatch()
		return false
	}
	r.all[c.name] = c
	return true
}

func (r *Callees) remove(c *callee) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, c.name)
}

// resume continues a stream on another leg.
func (r *Callees) resume(l *inbound, at position) error {
	r.mu.Lock()
	c := r.all[at.name]
	r.mu.Unlock()
	if c == nil || !c.sameAs(l.Head()) {
		return errUnknown
	}
	if err := c.accept(l, at); err != nil {
		return err
	}
	c.switchTo(l, at)
	<-l.done
	return l.err
}

// A callee is the callee's side of a stream that can move: the handler's
// call.ServerStream.
type callee struct {
	head   *call.Head
	ctx    context.Context //nolint:containedctx // the stream's
	cancel context.CancelFunc
	name   string

	mu      sync.Mutex
	pos     position // position of current
	current *inbound // the leg whose end has not been reached
	next    *inbound // not nil: accepted, and current has not ended yet
	ended   bool
	trailer metadata.MD

	headerMu   sync.Mutex // guards the header; locked before sending
	headerSent atomic.Bool
	sending    sync.Mutex
	out        atomic.Pointer[inbound] // changed under sending, or before the header under headerMu

	legReader[*inbound]
}

// An inbound is a leg as the callee sees it.
type inbound struct {
	call.ServerStream
	unhook       func() bool
	headerInBand bool          // the header is to be its first message; under headerMu
	switched     chan struct{} // closed when the callee sends on it
	empty        chan struct{} // closed when it has been read to its end
	once         sync.Once
	done         chan struct{} // closed when it has ended
	err          error         // its status, once it has ended
}

func (l *inbound) drained() <-chan struct{} { return l.empty }

func newCallee(l *inbound, at position) *callee {
	h := l.Head().Clone()
	h.Metadata = Strip(h.Metadata)
	c := &callee{head: h, name: at.name, pos: at, current: l, legReader: newLegReader(l)}
	c.out.Store(l)
	// The stream outlasts its first leg, and has that leg's values and deadline.
	ctx := context.WithoutCancel(l.Context())
	if d, ok := l.Context().Deadline(); ok {
		c.ctx, c.cancel = context.WithDeadline(ctx, d)
	} else {
		c.ctx, c.cancel = context.WithCancel(ctx)
	}
	c.watch(l)
	return c
}

// watch ends the stream when its leg l ends before the stream has left it.
func (c *callee) watch(l *inbound) {
	l.unhook = context.AfterFunc(l.Context(), func() {
		select {
		case <-l.done:
		default:
			c.cancel()
		}
	})
}

func (c *callee) unwatch() {
	c.current.unhook()
	c.cancel()
}

// sameAs reports whether a leg is of the method, the tenant and the peer that began the stream.
func (c *callee) sameAs(h *call.Head) bool {
	return h.Method == c.head.Method && h.Tenant == c.head.Tenant && h.Peer == c.head.Peer
}

// Context implements call.ServerStream.
func (c *callee) Context() context.Context { return c.ctx }

// Head implements call.ServerStream.
func (c *callee) Head() *call.Head { return c.head }

// SetTrailer implements call.ServerStream.
func (c *callee) SetTrailer(md metadata.MD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trailer = md
}

// SendHeader implements call.ServerStream.
func (c *callee) SendHeader(md metadata.MD) error {
	c.headerMu.Lock()
	defer c.headerMu.Unlock()
	return c.sendHeaderLocked(md)
}

// sendHeaderLocked sends the header. headerMu is held.
func (c *callee) sendHeaderLocked(md metadata.MD) error {
	c.headerSent.Store(true)
	l := c.out.Load()
	if !l.headerInBand {
		return l.SendHeader(md)
	}
	l.headerInBand = false
	return l.Send(AppendHeader(md))
}

// Send implements call.ServerStream.
func (c *callee) Send(m *call.Message) error {
	if !c.headerSent.Load() {
		if err := c.ensureHeader(); err != nil {
			m.Free()
			return err
		}
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.out.Load().Send(m)
}

// ensureHeader sends an empty header before the first message.
func (c *callee) ensureHeader() error {
	c.headerMu.Lock()
	defer c.headerMu.Unlock()
	if c.headerSent.Load() {
		return nil
	}
	return c.sendHeaderLocked(nil)
}

// Recv implements call.ServerStream.
func (c *callee) Recv() (*call.Message, error) {
	c.reading <- struct{}{}
	defer func() { <-c.reading }()
	if m := c.dequeue(); m != nil {
		return m, nil
	}
	for c.err == nil {
		m, err := c.in.Recv()
		if err == nil {
			return m, nil
		}
		c.advance(err)
	}
	return nil, c.err
}

// advance switches to the next leg, or ends the stream if there is none.
func (c *callee) advance(err error) {
	c.mu.Lock()
	next := c.next
	c.mu.Unlock()
	close(c.in.empty)
	if next != nil && next != c.in && errors.Is(err, io.EOF) {
		c.in = next
		return
	}
	c.err = err
}

// Lend returns a message in memory that the leg sends without a copy, if it has such memory.
func (c *callee) Lend(size int) (*call.Message, error) {
	lender, ok := c.out.Load().ServerStream.(interface {
		Lend(int) (*call.Message, error)
	})
	if !ok {
		return &call.Message{Data: make([]byte, size)}, nil
	}
	return lender.Lend(size)
}
