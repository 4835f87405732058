package fabric

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

var errHeaderSent = status.Error(codes.Internal, "transport: SendHeader called multiple times")

// serverCall is the context of one call's handler, and the header, trailer and failure of the call.
// It is one allocation: the parts that most handlers never use (a channel that ends with the call,
// the values) are made on demand.
type serverCall struct {
	parent context.Context //nolint:containedctx // this is a context
	server *Server
	head   *call.Head
	stream call.ServerStream // nil for a unary call without a stream

	mu         sync.Mutex
	life       context.Context //nolint:containedctx // as above
	cancel     context.CancelFunc
	values     context.Context //nolint:containedctx // as above
	ended      bool
	headerSent bool // the header was sent
	header     metadata.MD
	trailer    metadata.MD
	failure    error // a failure to send or receive, which is the call's status
}

var (
	_ context.Context            = (*serverCall)(nil)
	_ grpc.ServerTransportStream = (*serverCall)(nil)
)

// Deadline implements context.Context.
func (c *serverCall) Deadline() (time.Time, bool) {
	d, ok := c.parent.Deadline()
	if mine := c.head.Deadline; !mine.IsZero() && (!ok || mine.Before(d)) {
		return mine, true
	}
	return d, ok
}

// Done implements context.Context.
func (c *serverCall) Done() <-chan struct{} { return c.liveContext().Done() }

// Err implements context.Context.
func (c *serverCall) Err() error { return c.liveContext().Err() }

// liveContext returns the context that ends with the call: when its caller is gone or its deadline
// has passed, when the server stops, or when the handler has returned.
func (c *serverCall) liveContext() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life == nil {
		c.makeContext()
	}
	return c.life
}

func (c *serverCall) makeContext() {
	if d, ok := c.Deadline(); ok {
		c.life, c.cancel = context.WithDeadline(c.parent, d)
	} else {
		c.life, c.cancel = context.WithCancel(c.parent)
	}
	if c.ended {
		c.cancel()
		return
	}
	unhook := context.AfterFunc(c.server.life, c.cancel)
	cancel := c.cancel
	c.cancel = func() { unhook(); cancel() }
}

// Value implements context.Context.
func (c *serverCall) Value(key any) any {
	c.mu.Lock()
	if c.values == nil {
		c.values = c.makeValues()
	}
	values, life := c.values, c.life
	c.mu.Unlock()
	if v := values.Value(key); v != nil {
		return v
	}
	if life != nil {
		return life.Value(key)
	}
	return c.parent.Value(key)
}

// makeValues returns a context with the values that grpc-go's packages expect in a handler's
// context.
func (c *serverCall) makeValues() context.Context {
	md := c.head.Metadata
	if md == nil {
		md = metadata.MD{}
	}
	ctx := metadata.NewIncomingContext(context.Background(), md)
	if _, known := peer.FromContext(c.parent); !known {
		ctx = peer.NewContext(ctx, callerOf(c.head))
	}
	return grpc.NewContextWithServerTransportStream(ctx, c)
}

// end ends the handler's context.
func (c *serverCall) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}

// Method implements grpc.ServerTransportStream.
func (c *serverCall) Method() string { return c.head.Method }

// SetHeader implements grpc.ServerTransportStream.
func (c *serverCall) SetHeader(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	if err := validate(md); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headerSent || c.ended {
		return errHeaderSent
	}
	c.header = metadata.Join(c.header, withoutReserved(md.Copy()))
	return nil
}

// SendHeader implements grpc.ServerTransportStream.
func (c *serverCall) SendHeader(md metadata.MD) error {
	if err := validate(md); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headerSent || c.ended {
		return errHeaderSent
	}
	if md.Len() > 0 {
		c.header = metadata.Join(c.header, withoutReserved(md.Copy()))
	}
	return c.sendHeaderLocked()
}

// sendHeaderLocked sends the header; the caller holds mu.
func (c *serverCall) sendHeaderLocked() error {
	c.headerSent = true
	if c.stream == nil {
		return nil
	}
	return c.stream.SendHeader(c.header)
}

// ensureHeader sends the header before the first message.
func (c *serverCall) ensureHeader() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headerSent {
		return nil
	}
	return c.sendHeaderLocked()
}

// SetTrailer implements grpc.ServerTransportStream.
func (c *serverCall) SetTrailer(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	if err := validate(md); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trailer = metadata.Join(c.trailer, withoutReserved(md.Copy()))
	return nil
}

// outcome returns the header and the trailer that the handler set.
func (c *serverCall) outcome() call.End {
	c.mu.Lock()
	defer c.mu.Unlock()
	return call.End{Header: c.header, Trailer: c.trailer}
}

// Caller is the peer that makes a call, as authenticated by the transport.
type Caller struct {
	credentials.CommonAuthInfo
	// Tenant and Peer are copied from the call's Head.
	Tenant, Peer string
}

// AuthType implements credentials.AuthInfo.
func (Caller) AuthType() string { return "outboard" }

// CallerFromContext returns the caller of the call that a handler's ctx belongs to.
func CallerFromContext(ctx context.Context) (Caller, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{}, false
	}
	c, ok := p.AuthInfo.(Caller)
	return c, ok
}

func callerOf(h *call.Head) *peer.Peer {
	return &peer.Peer{Addr: address(h.Peer), AuthInfo: Caller{Tenant: h.Tenant, Peer: h.Peer}}
}

// address names a peer.
type address string

var _ net.Addr = address("")

func (address) Network() string  { return "fabric" }
func (a address) String() string { return string(a) }
