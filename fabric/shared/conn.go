package shared

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// side says which lane a Conn's own calls take.
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
	peer    Peer

	once sync.Once
	done chan struct{}
	err  error
}

var (
	_ call.Transport = (*Conn)(nil)
	_ call.Unary     = (*Conn)(nil)
	_ Lender         = (*Conn)(nil)
)

// A Lender lends memory that its transport sends without a copy. A Conn is one,
// for requests; for responses a call.ServerStream of this package is one, and
// [LenderFrom] finds the one of a call.UnaryHandler's context.
type Lender interface {
	// Lend returns a message with size bytes of Data. Fill it, cut Data at its end if
	// that is too long, and send it or Free it. Data may be ordinary memory.
	Lend(size int) (*call.Message, error)
}

type lenderKey struct{}

// LenderFrom is the Lender for the response of the call whose context ctx is.
func LenderFrom(ctx context.Context) (Lender, bool) {
	l, ok := ctx.Value(lenderKey{}).(Lender)
	return l, ok
}

func newConn(socket *net.UnixConn, r *region, s side, serves bool, peer Peer, o *Options) *Conn {
	return &Conn{options: *o, socket: socket, region: r, side: s, serves: serves, peer: peer, done: make(chan struct{})}
}

func (c *Conn) start() {}

// Peer is who is at the other end.
func (c *Conn) Peer() Peer { return c.peer }

// Done is closed when the connection has ended; Err then says why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil while the connection lives.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends every call with codes.Unavailable, and waits for the handlers of the
// peer's calls: it must not be called by one.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.err = status.Error(codes.Unavailable, "connection closed")
		_ = c.socket.Close()
		c.region.release()
		close(c.done)
	})
	return nil
}

// Lend implements Lender, for requests.
func (c *Conn) Lend(size int) (*call.Message, error) {
	return &call.Message{Data: make([]byte, size)}, nil
}

// Open implements call.Transport.
func (c *Conn) Open(context.Context, *call.Head) (call.ClientStream, error) {
	return nil, status.Error(codes.Unavailable, "connection closed")
}

// Unary implements call.Unary.
func (c *Conn) Unary(context.Context, *call.Head, *call.Message) (*call.Message, call.End, error) {
	return nil, call.End{}, status.Error(codes.Unavailable, "connection closed")
}
