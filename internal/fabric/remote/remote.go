package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// Options are the options of a connection. The zero value makes calls and serves none.
type Options struct {
	// Handler serves the peer's calls; nil refuses them. A Handler that is also a call.UnaryHandler
	// serves unary calls as such.
	Handler call.Handler
	// Tenant and Peer are set in the heads of the peer's calls.
	Tenant, Peer string
	// Trusted means that the peer is a trusted node: the tenants and peers in the heads of calls
	// are sent to it and accepted from it.
	Trusted bool
	// MaxBuffered bounds the bytes of messages of streams that were received and not read:
	// the call that exceeds it ends with codes.ResourceExhausted. Default 256 MiB.
	MaxBuffered int
	// MaxMessage bounds one message that is received, in bytes. Default 64 MiB.
	MaxMessage int
	// Logger receives errors of connections. Default: none.
	Logger *slog.Logger
	// Framed has the options of the connections that Dial and Serve create.
	Framed framed.Options
	// MaxConns bounds the connections that Serve accepts; those of one address are half at most (see
	// acceptor.Slots). Default 20,000, or 30 percent of the process's descriptors if that is less.
	MaxConns int
	// Accept, if set, is called by Serve for each peer after the handshake, in which the peer has
	// shown its certificate. It may change o for that peer; an error closes the connection.
	Accept func(c *framed.Conn, o *Options) error
	// Serving, if set, is called by Serve with each connection before its first
	// call is served.
	Serving func(c *Conn)
}

func (o *Options) setDefaults() {
	if o.MaxMessage <= 0 {
		o.MaxMessage = 64 << 20
	}
	if o.MaxBuffered <= 0 {
		o.MaxBuffered = 256 << 20
	}
	o.MaxMessage = min(o.MaxMessage, maxLength)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Conn carries calls both ways over one connection.
type Conn struct {
	o      Options
	framed *framed.Conn
	unary  call.UnaryHandler // Options.Handler; nil: it is not a UnaryHandler

	buffers      buffers.Pool
	methods      methods
	buffered     account
	services     serviceCounts // of calls to the peer
	handlers     sync.WaitGroup
	peerCalls    atomic.Int32  // calls of the peer
	maxPeerCalls int32         // bound of peerCalls
	peerIdle     chan struct{} // gets a value when peerCalls falls to 0
	ownCalls     atomic.Int32  // calls to the peer, and finishing
	idle         chan struct{} // closed when no call to the peer is left and none may begin

	draining     chan struct{} // closed when the peer wants no more calls, and at the end
	drainingOnce sync.Once
	finishOnce   sync.Once
	idleOnce     sync.Once
	drained      atomic.Bool // the peer wants no more calls
}

var (
	_ call.Transport = (*Conn)(nil)
	_ call.Unary     = (*Conn)(nil)
)

// New carries calls over c, which it owns from now on. The caller may still accept streams of
// methods other than "call" and "drain".
func New(c *framed.Conn, o Options) *Conn {
	o.setDefaults()
	conn := &Conn{o: o, framed: c, maxPeerCalls: 2 * int32(c.MaxStreams()), draining: make(chan struct{}), peerIdle: make(chan struct{}, 1)}
	conn.idle = make(chan struct{})
	conn.buffered.limit = int64(o.MaxBuffered)
	conn.services.init(c.MaxStreams())
	conn.unary, _ = o.Handler.(call.UnaryHandler)
	c.Handle(callMethod, conn.accept)
	c.Handle(drainMethod, conn.acceptDrain)
	conn.handlers.Go(func() {
		<-c.Done()
		conn.drainingOnce.Do(func() { close(conn.draining) })
		conn.buffers.Close()
	})
	return conn
}

// Dial connects to addr over TCP with TLS, see framed.Dial.
func Dial(ctx context.Context, addr string, t *tls.Config, o Options) (*Conn, error) {
	c, err := framed.Dial(ctx, addr, t, o.Framed)
	if err != nil {
		return nil, err
	}
	return New(c, o), nil
}

const (
	// defaultMaxConns is the default of Options.MaxConns, unless the process may have too few
	// descriptors.
	defaultMaxConns = 20_000
	// connsPercent bounds the default, in percent of the process's descriptors.
	connsPercent = 30
)

// Serve serves the calls of the connections that l accepts, until ctx ends: then it closes l and
// the connections, and waits for the handlers. It closes connections beyond Options.MaxConns. While
// the process has no file descriptors left it waits. It returns an error if another goroutine closes l.
func Serve(ctx context.Context, l net.Listener, t *tls.Config, o Options) error {
	o.setDefaults()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var closed error
	accept := func() (net.Conn, error) {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
			closed = err
			cancel()
		}
		return nc, err
	}
	conns := acceptor.NewSlots(cmp.Or(o.MaxConns, acceptor.Share(defaultMaxConns, connsPercent)))
	acceptor.Serve(ctx, l, accept, acceptor.Options{Name: "calls", Log: o.Logger}, func(ctx context.Context, nc net.Conn) {
		release, err := conns.Acquire(nc.RemoteAddr())
		if err != nil {
			_ = nc.Close()
			o.Logger.Debug("peer refused", "peer", nc.RemoteAddr().String(), "error", err)
			return
		}
		defer release()
		if err := serveConn(ctx, nc, t, o); err != nil && ctx.Err() == nil {
			o.Logger.Warn("peer refused", "peer", nc.RemoteAddr().String(), "error", err)
		}
	})
	return closed
}

func serveConn(ctx context.Context, nc net.Conn, t *tls.Config, o Options) error {
	of := o.Framed
	of.TLS = t
	c := framed.Server(nc, of)
	defer c.Close()
	if err := c.Handshake(ctx); err != nil {
		return err
	}
	if o.Accept != nil {
		if err := o.Accept(c, &o); err != nil {
			return err
		}
	}
	conn := New(c, o)
	defer conn.Close()
	if o.Serving != nil {
		o.Serving(conn)
	}
	select {
	case <-ctx.Done():
	case <-c.Done():
	}
	return nil
}

// Framed returns the underlying connection.
func (c *Conn) Framed() *framed.Conn { return c.framed }

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.framed.Done() }

// Err returns why the connection ended, or nil while it lives.
func (c *Conn) Err() error { return c.framed.Err() }

// Close ends every call with codes.Unavailable, including the calls of the peer, and waits for the
// handlers. A handler must not call it.
func (c *Conn) Close() error {
	err := c.framed.Close()
	c.handlers.Wait()
	return err
}

// statusOf returns the status error for the error that ended a stream or a connection.
func statusOf(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	if errors.Is(err, framed.ErrClosed) {
		return status.Error(codes.Unavailable, "connection is closed")
	}
	return status.Error(codeOf(outboard.KindOf(err)), err.Error())
}

// codesOf has the codes of the kinds that say more than that the peer is unavailable.
var codesOf = map[outboard.Kind]codes.Code{
	outboard.Invalid:   codes.InvalidArgument,
	outboard.NotFound:  codes.Unimplemented,
	outboard.Denied:    codes.PermissionDenied,
	outboard.Protocol:  codes.Internal,
	outboard.Exhausted: codes.ResourceExhausted,
	outboard.Conflict:  codes.Aborted,
}

func codeOf(k outboard.Kind) codes.Code {
	if code, ok := codesOf[k]; ok {
		return code
	}
	return codes.Unavailable
}
