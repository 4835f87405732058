package grpcconn

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/outboard-run/outboard"
)

// sweeps is how often the calls of a connection are checked while their client may make the server
// wait.
const sweeps = 4

// Options are the options of the connections of a server. All fields but those with a default are
// required.
type Options struct {
	// Budget bounds the bytes that the calls of all connections hold.
	Budget *Budget
	// MaxBytes bounds the bytes that the calls of one connection hold. Default: only Budget does.
	MaxBytes int64
	// MaxCalls bounds the calls of one connection whose responses are not sent: grpc-go counts a call
	// until its handler returns, and keeps the response until the client reads it.
	MaxCalls int
	// Timeout is how long a client may delay a call, beside a second for each 4 KiB of a request and
	// for each 64 KiB of a response.
	Timeout time.Duration
	// Setting is the setting by which a user changes Timeout, for errors. Default: none.
	Setting string
	// SpareReaders has clients that read their responses slowly tolerated while at most half of Budget
	// is held, and half of the client's share.
	SpareReaders bool
	// Refuse returns the gRPC error for the error by which a call ends.
	Refuse func(error) error
	// Refused is called when the server ends a call or a connection. Default: nothing.
	Refused func(Reason, error)
}

// A Reason is why a server ends a call or a connection.
type Reason string

// The reasons for which a server ends calls and connections.
const (
	Memory       Reason = "memory"        // the client may not hold more bytes
	Calls        Reason = "calls"         // too many calls of a connection
	SlowRequest  Reason = "slow_request"  // the client sends a message too slowly
	SlowResponse Reason = "slow_response" // the client reads a response too slowly
)

// A Conn is a connection of a gRPC client.
type Conn struct {
	net.Conn
	options *Options
	auth    credentials.AuthInfo // of the handshake
	peer    *peer.Peer           // with auth; only for the tap handler

	in, out frameScanner // each for one goroutine: the server's reader and its writer
	buffer  []byte       // for unread
	unread  []byte       // bytes that the server has not read yet
	writes  atomic.Int64 // how often a Write has begun or ended: odd while one is in progress

	mu    sync.Mutex
	calls map[uint32]*Call // by stream: from its header fields until its response is sent
	// last is the call whose header fields were read last. The server reads no further before it
	// has processed them, so this is the call that its tap handler is about. It is nil after a call
	// too many, which the server may still process.
	last     *Call
	reserved int64
	err      error       // why the connection ends
	sweeper  *time.Timer // nil: not needed yet
	sweeping bool        // sweeper is running
	// lastWrites is writes at the last sweep, stalled the number of sweeps in a row that found the
	// same Write in progress.
	lastWrites int64
	stalled    int
}

// New returns a connection from which nothing has been read.
func New(conn net.Conn, o *Options) *Conn {
	return &Conn{Conn: conn, options: o, in: afterPreface(), calls: map[uint32]*Call{}}
}

// Read implements net.Conn. It returns no byte beyond the end of header fields, so that last is the
// call that the server processes.
func (c *Conn) Read(p []byte) (n int, err error) {
	if len(c.unread) == 0 {
		k, failed := c.Conn.Read(p)
		n, err = c.in.scan(p[:k], c.received), failed
		c.buffer = append(c.buffer[:0], p[n:k]...)
		c.unread = c.buffer
	} else {
		n = c.in.scan(c.unread[:min(len(p), len(c.unread))], c.received)
		copy(p, c.unread[:n])
		c.unread = c.unread[n:]
	}
	if failure := c.failure(); failure != nil {
		return n, failure
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	c.out.scan(p, c.sent)
	c.writes.Add(1)
	defer c.writes.Add(1)
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	for stream, call := range c.calls {
		c.removeCall(stream, call)
	}
	if c.err == nil {
		c.err = net.ErrClosed
	}
	if c.sweeper != nil {
		c.sweeper.Stop()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

func (c *Conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail ends the connection. c.mu must be held.
func (c *Conn) fail(reason Reason, err error) {
	if c.err == nil {
		c.err = err
		c.options.refused(reason, err)
	}
}

func (o *Options) refused(reason Reason, err error) {
	if o.Refused != nil {
		o.Refused(reason, err)
	}
}

// received processes a part of a frame of the client, and reports whether it ends header fields.
func (c *Conn) received(part *framePart) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	fields := part.kind == frameHeaders || part.kind == frameContinuation
	call := c.calls[part.stream]
	if call == nil && part.kind == frameHeaders && part.first {
		call = c.addCall(part.stream)
	}
	if call == nil {
		return fields && part.last
	}
	switch part.kind {
	case frameData:
		call.receivedBytes(part.bytes)
	case frameReset:
		c.removeCall(part.stream, call)
	}
	if part.endsStream() {
		call.received = true
	}
	return fields && part.last
}

// addCall adds a call. c.mu must be held.
func (c *Conn) addCall(stream uint32) *Call {
	if c.err != nil {
		c.last = nil
		return nil
	}
	if len(c.calls) >= c.options.MaxCalls {
		c.last = nil
		c.fail(Calls, outboard.Errorf(outboard.Busy, "serve gRPC", "the client has not read the responses to %d calls", len(c.calls)))
		return nil
	}
	call := &Call{conn: c, left: c.options.patience()}
	c.calls[stream], c.last = call, call
	if !c.sweeping {
		c.sweeping = true
		c.scheduleSweep()
	}
	return call
}

// removeCall removes a call. c.mu must be held.
func (c *Conn) removeCall(stream uint32, call *Call) {
	delete(c.calls, stream)
	call.ended = true
	call.release()
}

// sent processes a part of a frame of the server.
func (c *Conn) sent(part *framePart) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[part.stream]
	if call == nil {
		return false
	}
	if part.kind == frameData {
		call.sentBytes(part.payload)
	}
	if part.endsStream() || part.kind == frameReset {
		c.removeCall(part.stream, call)
	}
	return false
}

// reserve reserves bytes for a call of a client. c.mu must be held.
func (c *Conn) reserve(client string, n int64) error {
	if limit := c.options.MaxBytes; limit > 0 && c.reserved+n > limit {
		return outboard.Errorf(outboard.Busy, "", "the messages of this connection hold %v, of %v at most: send it again later",
			outboard.Bytes(c.reserved), outboard.Bytes(limit))
	}
	if err := c.options.Budget.Reserve(client, n); err != nil {
		return err
	}
	c.reserved += n
	return nil
}

// unreserve releases bytes of a client. c.mu must be held.
func (c *Conn) unreserve(client string, n int64) {
	c.options.Budget.Release(client, n)
	c.reserved -= n
}

// patience is for how long a client may delay a call that begins to wait for it.
func (o *Options) patience() time.Duration { return o.Timeout + o.Timeout/sweeps }

// remedy returns the setting that changes the timeout, for the end of an error.
func (o *Options) remedy() string {
	if o.Setting == "" {
		return ""
	}
	return " (" + o.Setting + ")"
}

// FromTap returns the connection of the call that a tap handler is about, and the context in which
// the peer has the credentials of the handshake. It is nil for a server without Credentials.
func FromTap(ctx context.Context) (context.Context, *Conn) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return ctx, nil
	}
	info, ok := p.AuthInfo.(connInfo)
	if !ok {
		return ctx, nil
	}
	c := info.conn
	if c.peer == nil {
		c.peer = &peer.Peer{Addr: p.Addr, LocalAddr: p.LocalAddr, AuthInfo: c.auth}
	}
	return peer.NewContext(ctx, c.peer), c
}

// A Client says to the connection who makes a call.
type Client struct {
	// Name is for whom bytes are reserved.
	Name string
	// Streams reports whether the call may have several messages.
	Streams bool
	// Ended is called when the call has ended and its handler does not run; nil: nothing is.
	Ended func()
}

// Open returns the context of the call that the tap handler is about. Client.Ended is not called if
// it returns an error.
func (c *Conn) Open(ctx context.Context, client Client) (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.last
	if call == nil {
		return ctx, c.err
	}
	call.client = client
	ctx, call.cancel = context.WithCancel(context.WithValue(ctx, callKey{}, call))
	return ctx, nil
}

type callKey struct{}

// callOf returns the call of a context, nil if no tap handler has opened it.
func callOf(ctx context.Context) *Call {
	call, _ := ctx.Value(callKey{}).(*Call)
	return call
}

// connInfo passes the connection of a call to the tap handler.
type connInfo struct {
	credentials.AuthInfo
	conn *Conn
}

// Credentials returns credentials of a server whose connections are Conns behind the handshake of
// inner.
func Credentials(inner credentials.TransportCredentials, o *Options) credentials.TransportCredentials {
	return connCredentials{inner, o}
}

type connCredentials struct {
	credentials.TransportCredentials
	options *Options
}

// ServerHandshake implements credentials.TransportCredentials.
func (c connCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	conn := New(secured, c.options)
	conn.auth = info
	return conn, connInfo{info, conn}, nil
}

// Clone implements credentials.TransportCredentials.
func (c connCredentials) Clone() credentials.TransportCredentials {
	return connCredentials{c.TransportCredentials.Clone(), c.options}
}
