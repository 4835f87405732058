package shared

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// side selects the lane of a Conn's own calls.
type side int

const (
	dialler side = iota
	acceptor
)

// A Conn is one end of a connection. It carries calls both ways.
type Conn struct {
	options Options
	socket  *net.UnixConn
	region  *region
	side    side
	serves  bool // the peer has a handler
	parks   bool // the peer wakes a parked reader through the socket
	peer    Peer
	caller  caller
	callee  callee
	wait    sync.WaitGroup
	buffers buffers.Pool // for messages that exceed a heap block

	draining    chan struct{} // closed when the peer drains the connection, and at the end
	drainedOnce sync.Once
	drainOnce   sync.Once

	once sync.Once
	mu   sync.Mutex
	done chan struct{}
	err  error
}

var (
	_ call.Transport = (*Conn)(nil)
	_ call.Unary     = (*Conn)(nil)
	_ Lender         = (*Conn)(nil)
	_ Lender         = (*clientStream)(nil)
	_ Lender         = (*served)(nil)
)

// A Lender lends memory that its transport sends without a copy: a Conn for requests, a
// call.ServerStream of this package for responses. [LenderFrom] returns the Lender of a
// call.UnaryHandler's context.
type Lender interface {
	// Lend returns a message with size bytes of Data. Fill it, shorten Data to the bytes written,
	// and send it or Free it. Data is ordinary memory when size is small, exceeds a heap block, or
	// the heap is full.
	Lend(size int) (*call.Message, error)
}

type lenderKey struct{}

// LenderFrom returns the Lender for the response of the call with context ctx.
func LenderFrom(ctx context.Context) (Lender, bool) {
	l, ok := ctx.Value(lenderKey{}).(Lender)
	return l, ok
}

func newConn(socket *net.UnixConn, r *region, s side, theirs hello, peer Peer, o *Options) *Conn {
	c := &Conn{options: *o, socket: socket, region: r, side: s, serves: theirs.serves, parks: theirs.notifies, peer: peer, done: make(chan struct{}), draining: make(chan struct{})}
	r.notifyPeer = c.notifyPeer
	// Directions 0 and 1 are the lane of the dialler's calls, 2 and 3 the lane of the listener's
	// calls.
	c.caller.open(c, 2*int(s))
	c.callee.open(c, 3-2*int(s))
	return c
}

// start begins to serve and to watch the peer.
func (c *Conn) start() {
	c.spawn(c.watchPeer)
	if c.options.Handler != nil {
		c.callee.reading = true
		c.spawn(c.callee.serve)
	}
}

// spawn runs f in a goroutine that Close waits for. It returns false if the connection has ended:
// then f does not run.
func (c *Conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.region.retain()
	c.wait.Go(func() {
		defer c.region.release()
		f()
	})
	return true
}

// watchPeer reads the socket until the peer has closed it.
func (c *Conn) watchPeer() {
	word := make([]byte, 1)
	n, err := c.socket.Read(word)
	for ; n > 0; n, err = c.socket.Read(word) {
		if !c.handleSocketByte(word[0]) {
			return
		}
	}
	if c.Err() == nil && err != nil {
		c.caller.peerGone(unavailable("the peer is gone"))
		<-c.caller.closed
		c.fail(unavailable("the peer is gone"))
	}
}

// closeOnViolation ends the connection because the peer broke the protocol.
func (c *Conn) closeOnViolation(err error) {
	if c.fail(status.Error(codes.Unavailable, err.Error())) {
		c.options.Logger.Warn("peer broke the protocol", "peer", c.peer.String(), "error", err)
	}
}

// fail ends all calls. It returns true the first time.
func (c *Conn) fail(err error) bool {
	first := false
	c.once.Do(func() {
		first = true
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		_ = c.socket.Close()
		c.caller.close(err)
		c.callee.close(err)
		close(c.done)
		c.drainedOnce.Do(func() { close(c.draining) })
		c.buffers.Close()
		c.region.release()
	})
	return first
}

// reason returns why the connection has ended.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return unavailable("connection closed")
	}
	return c.err
}

// Peer returns the peer's credentials.
func (c *Conn) Peer() Peer { return c.peer }

// CheckPeer calls check with the number of the peer's process, and returns its error, or an error if
// that process has ended: see unixsock.CheckPeer.
func (c *Conn) CheckPeer(check func(pid int) error) error { return unixsock.CheckPeer(c.socket, check) }

// Done returns a channel that is closed when the connection has ended; Err then returns the reason.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, or nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends every call with codes.Unavailable and waits for the handlers of the peer's calls. A
// handler must not call it.
func (c *Conn) Close() error {
	c.fail(unavailable("connection closed"))
	c.wait.Wait()
	return nil
}

// Lend implements Lender, for requests.
func (c *Conn) Lend(size int) (*call.Message, error) { return c.caller.Lend(size) }

// Open implements call.Transport.
func (c *Conn) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	if !c.region.tryRetain() {
		return nil, c.refusalError()
	}
	defer c.region.release()
	ctx, cancel := withHeadDeadline(ctx, h)
	s, err := c.caller.openStream(ctx, h)
	if err != nil {
		cancel()
		return nil, err
	}
	s.release = cancel
	return s, nil
}

// Unary implements call.Unary.
func (c *Conn) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	if !c.region.tryRetain() {
		err := c.refusalError()
		freeIfSent(request, err)
		return nil, call.End{}, err
	}
	defer c.region.release()
	ctx, cancel := withHeadDeadline(ctx, h)
	defer cancel()
	data, err := request.Bytes()
	if err != nil {
		request.Free()
		return nil, call.End{}, status.Error(codes.Internal, err.Error())
	}
	if len(data) > c.caller.heap.maxBlock() {
		return c.caller.unaryLarge(ctx, h, request)
	}
	return c.caller.unary(ctx, h, request)
}

// withHeadDeadline returns a context that ends at the head's deadline, if that is before the
// deadline of ctx.
func withHeadDeadline(ctx context.Context, h *call.Head) (context.Context, context.CancelFunc) {
	if h.Deadline.IsZero() {
		return ctx, func() {}
	}
	if at, ok := ctx.Deadline(); ok && !at.After(h.Deadline) {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, h.Deadline)
}

// Handle replaces Options.Handler, which must not be nil, for this connection. Only the accept
// function of [Listener.Serve] may call it.
func (c *Conn) Handle(h call.Handler) {
	c.callee.handler = h
	c.callee.unary, _ = h.(call.UnaryHandler)
}
