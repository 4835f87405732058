package node

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/outboard-run/outboard"
)

// maxGRPCCalls bounds the calls of a connection whose responses the client has not read: grpc-go
// counts a call until its handler returns, and keeps the response until the client reads it.
const maxGRPCCalls = 2 * maxModelStreams

// The rates below which a client's calls end, in bytes per second as shifts: 4 KiB of a request, 64
// KiB of a response.
const (
	slowestRequest  = 12
	slowestResponse = 16
)

// sweeps is how often the calls of a connection are checked while their client may make the node
// wait.
const sweeps = 4

// A grpcConn is a connection of a gRPC client. It follows the frames of both directions, since
// grpc-go's server bounds neither the bytes of the messages that it is receiving nor how slowly a
// client may send or read them: the bytes of requests are reserved for their client until the
// response is sent, and a call that its client delays for longer than timeout ends.
type grpcConn struct {
	net.Conn
	bodies  *modelBodies
	timeout time.Duration

	in, out frameScanner // each for one goroutine: the server's reader and its writer
	buffer  []byte       // for unread
	unread  []byte       // bytes that the server has not read yet
	// sweeping reports whether the connection has a read deadline, at which calls are checked. It
	// belongs to the reader.
	sweeping bool

	mu    sync.Mutex
	calls map[uint32]*grpcCall // by stream: from its header fields until its response is sent
	// last is the call whose header fields were read last. The server reads no further before it
	// has processed them, so this is the call that its tap handler is about. It is nil after a call
	// too many, which the server may still process.
	last *grpcCall
	err  error // why the connection ends
}

// newGRPCConn returns a connection from which preface, the beginning of the client's bytes, has been
// read.
func newGRPCConn(conn net.Conn, preface []byte, bodies *modelBodies, timeout time.Duration) *grpcConn {
	return &grpcConn{Conn: conn, bodies: bodies, timeout: timeout, in: afterPreface(), unread: preface, calls: map[uint32]*grpcCall{}}
}

// Read implements net.Conn. It returns no byte beyond the end of header fields, so that last is the
// call that the server processes.
func (c *grpcConn) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		n, err := c.receive(p)
		scanned := c.in.scan(p[:n], c.received)
		c.buffer = append(c.buffer[:0], p[scanned:n]...)
		c.unread = c.buffer
		return scanned, errors.Join(err, c.failure())
	}
	n := c.in.scan(c.unread[:min(len(p), len(c.unread))], c.received)
	copy(p, c.unread[:n])
	c.unread = c.unread[n:]
	return n, c.failure()
}

// receive reads from the client, and checks the calls at each read deadline that addCall has set.
func (c *grpcConn) receive(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if !c.sweeping || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err := c.sweep(); err != nil {
			return 0, err
		}
	}
}

// Write implements net.Conn.
func (c *grpcConn) Write(p []byte) (int, error) {
	c.out.scan(p, c.sent)
	return c.Conn.Write(p)
}

// SetDeadline implements net.Conn. The server ends its deadline for the handshake when it may have
// read the first call already, whose deadline begins then.
func (c *grpcConn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetDeadline(t); err != nil || !t.IsZero() || !c.sweeping {
		return err
	}
	return c.scheduleSweep()
}

// scheduleSweep sets the read deadline at which calls are checked next.
func (c *grpcConn) scheduleSweep() error {
	return c.SetReadDeadline(time.Now().Add(c.timeout / sweeps))
}

// Close implements net.Conn.
func (c *grpcConn) Close() error {
	c.mu.Lock()
	for stream, call := range c.calls {
		c.removeCall(stream, call)
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

func (c *grpcConn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// received processes a part of a frame of the client, and reports whether it ends header fields.
func (c *grpcConn) received(part *framePart) bool {
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
		call.count(part.bytes)
	case frameReset:
		c.removeCall(part.stream, call)
	}
	if part.endsStream() {
		call.received = true
	}
	return fields && part.last
}

// addCall adds a call. c.mu must be held.
func (c *grpcConn) addCall(stream uint32) *grpcCall {
	if len(c.calls) >= maxGRPCCalls {
		c.last = nil
		c.err = outboard.Errorf(outboard.Busy, "serve gRPC", "the client has not read the responses to %d calls", len(c.calls))
		return nil
	}
	call := &grpcCall{conn: c, left: c.timeout + c.timeout/sweeps}
	c.calls[stream], c.last = call, call
	if !c.sweeping {
		c.sweeping = c.scheduleSweep() == nil
	}
	return call
}

// removeCall removes a call. c.mu must be held.
func (c *grpcConn) removeCall(stream uint32, call *grpcCall) {
	delete(c.calls, stream)
	call.ended = true
	call.release()
}

// sent processes a part of a frame of the server.
func (c *grpcConn) sent(part *framePart) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[part.stream]
	if call == nil {
		return false
	}
	if part.kind == frameData {
		call.recent += part.bytes
	}
	if part.endsStream() || part.kind == frameReset {
		c.removeCall(part.stream, call)
	}
	return false
}

// sweep ends the calls whose requests arrive too slowly. It returns an error if the client reads a
// response too slowly.
func (c *grpcConn) sweep() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		switch {
		case call.handled && call.isLate(slowestResponse):
			return outboard.Errorf(outboard.Busy, "serve gRPC", "the client reads a response too slowly: %v is the longest that one waits (`outboard up --client-timeout`)", c.timeout)
		case call.handled || call.received || call.streams && (!call.receiving || call.read <= 0):
		case call.isLate(slowestRequest):
			call.fail(outboard.Errorf(outboard.Invalid, "", "the request arrives too slowly: %v is the longest that the node waits for it (`outboard up --client-timeout`)", c.timeout))
		}
	}
	if c.sweeping = len(c.calls) > 0; c.sweeping {
		return c.scheduleSweep()
	}
	return c.SetReadDeadline(time.Time{})
}

// A grpcCall is a call on a connection, whose lock guards it.
type grpcCall struct {
	conn    *grpcConn
	client  string             // the ID of its API key
	streams bool               // it may have several messages
	leave   func()             // called when the call has ended; nil: nothing is
	cancel  context.CancelFunc // of a stream
	aborted chan struct{}      // closed when the node cancels the call
	failed  error              // why it has

	receiving bool // the handler of a stream waits for a message
	received  bool // the request is complete
	running   bool // the handler runs
	handled   bool // the handler has returned
	ended     bool // the response is sent, or the client has gone

	read, reserved int64
	recent         int           // bytes sent or received since the last sweep
	left           time.Duration // how long the client may make the node wait
}

// count counts bytes of the request, and cancels the call if it may not have them. Beyond freeBody
// they are reserved for its client.
func (call *grpcCall) count(n int) {
	call.read += int64(n)
	call.recent += n
	more := call.read - freeBody - call.reserved
	if more <= 0 || call.failed != nil || call.ended {
		return
	}
	if err := call.conn.bodies.reserve(call.client, more); err != nil {
		call.fail(err)
		return
	}
	call.reserved += more
}

// inflate counts a message of the call that was compressed and has n bytes now. It cancels the call and
// returns false if the client may not have them.
func (call *grpcCall) inflate(n int64) bool {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	more := n - freeBody - call.reserved
	if more <= 0 || call.failed != nil || call.ended {
		return call.failed == nil
	}
	if err := call.conn.bodies.reserve(call.client, more); err != nil {
		call.fail(err)
		return false
	}
	call.reserved += more
	call.read = max(call.read, n)
	return true
}

// fail cancels a call.
func (call *grpcCall) fail(err error) {
	if call.failed != nil || call.aborted == nil {
		return
	}
	call.failed = err
	close(call.aborted)
	if call.streams {
		call.cancel()
	}
}

// state reports whether the request is complete, and why the node has canceled the call, if it has.
func (call *grpcCall) state() (complete bool, canceled error) {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	return call.received, call.failed
}

// abort is fail for other goroutines than the connection's.
func (call *grpcCall) abort(err error) {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.fail(err)
}

// isLate charges the call for the time since the last sweep, allows it the time for its bytes at a
// rate, and reports whether the client has made the node wait for too long.
func (call *grpcCall) isLate(slowest int) bool {
	limit := call.conn.timeout
	call.left = min(limit, call.left+time.Duration(call.recent)*time.Second>>slowest-limit/sweeps)
	call.recent = 0
	return call.left <= 0
}

// release releases what a call holds that has ended and whose handler does not run.
func (call *grpcCall) release() {
	if !call.ended || call.running {
		return
	}
	call.releaseBytes(0)
	if call.leave != nil {
		call.leave()
		call.leave = nil
	}
}

// releaseBytes releases the reserved bytes but for rest.
func (call *grpcCall) releaseBytes(rest int64) {
	if call.reserved > rest {
		call.conn.bodies.release(call.client, call.reserved-rest)
		call.reserved = rest
	}
}

// receive is called before a stream's handler waits for a message.
func (call *grpcCall) receive() {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.receiving, call.left = true, call.conn.timeout+call.conn.timeout/sweeps
}

// consume is called when a stream's handler has received a message of n bytes, which it counts
// itself from then on.
func (call *grpcCall) consume(n int64) {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.receiving = false
	call.read = max(0, call.read-n)
	call.releaseBytes(max(0, call.read-freeBody))
}

// start is called before the call's handler runs.
func (call *grpcCall) start() {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.running = true
}

// finish is called when the call's handler has returned. It returns why the node has canceled the
// call, if it has.
func (call *grpcCall) finish() error {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.running, call.handled = false, true
	call.left = call.conn.timeout + call.conn.timeout/sweeps
	call.release()
	return call.failed
}

// grpcConnInfo passes the connection of a call to the server's tap handler.
type grpcConnInfo struct{ conn *grpcConn }

// AuthType implements credentials.AuthInfo.
func (grpcConnInfo) AuthType() string { return "none" }

// grpcConnCredentials are the credentials of a server of grpcConns: there is no handshake.
type grpcConnCredentials struct {
	credentials.TransportCredentials // of package insecure: the client's half
}

// ServerHandshake implements credentials.TransportCredentials.
func (grpcConnCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := conn.(*grpcConn)
	if !ok {
		return nil, nil, errors.New("serve gRPC: the connection has no frame scanner")
	}
	return c, grpcConnInfo{c}, nil
}

// Clone implements credentials.TransportCredentials.
func (c grpcConnCredentials) Clone() credentials.TransportCredentials { return c }

type grpcCallKey struct{}

// open returns the context of the last call, for the server's tap handler. It calls leave when the
// call has ended, unless it returns an error.
func (c *grpcConn) open(ctx context.Context, client string, streams bool, leave func()) (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.last
	if call == nil {
		return ctx, c.err
	}
	call.client, call.streams, call.leave, call.aborted = client, streams, leave, make(chan struct{})
	ctx = context.WithValue(ctx, grpcCallKey{}, call)
	if streams {
		ctx, call.cancel = context.WithCancel(ctx)
	}
	return ctx, nil
}
