package framed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// A Conn is one connection to a peer, multiplexed into streams.
type Conn struct {
	o       Options
	socket  *socket
	rw      net.Conn // the socket, or TLS over it
	firstID uint32   // the first stream id of this side: odd for the client
	start   time.Time

	mu         sync.Mutex
	streams    map[uint32]*Stream
	lastPeerID uint32 // the greatest stream id that the peer has opened
	budget     int
	// acceptors holds the acceptors of streams, by method.
	acceptors map[string]*acceptor

	peerStreams atomic.Int32  // open streams that the peer began (endDirection); incremented by the reader
	ownStreams  chan struct{} // a semaphore of the streams that this side may open
	accepts     chan *Stream

	out      frameWriter
	live     liveness
	handover handover

	ready chan struct{} // closed when the handshake is over
	// handshaken is ready as a flag, which is cheaper to read.
	handshaken atomic.Bool
	done       chan struct{}
	closing    atomic.Bool // this side closes the connection
	failing    sync.Once
	err        error // set before done is closed
	// readEnded is closed when the reader has ended.
	readEnded chan struct{}
	loops     sync.WaitGroup
}

// maxUnaccepted bounds the streams that wait for Accept.
const maxUnaccepted = 256

// Client returns a Conn over nc, as the side that dialled.
func Client(nc net.Conn, o Options) *Conn { return newConn(nc, o, 1) }

// Server returns a Conn over nc, as the side that accepted.
func Server(nc net.Conn, o Options) *Conn { return newConn(nc, o, 2) }

// Dial connects to addr over TCP with TLS and waits for the handshake. Both sides present
// certificates; t has the trusted certificates.
func Dial(ctx context.Context, addr string, t *tls.Config, o Options) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, &outboard.Error{Op: "dial " + addr, Kind: outboard.Unreachable, Err: err}
	}
	if o.Dialed != nil {
		if err := o.Dialed(nc); err != nil {
			_ = nc.Close()
			return nil, &outboard.Error{Op: "dial " + addr, Kind: outboard.KindOf(err), Err: err}
		}
	}
	o.TLS = t
	if t != nil && t.ServerName == "" && !t.InsecureSkipVerify {
		o.TLS = t.Clone()
		o.TLS.ServerName, _, _ = net.SplitHostPort(addr)
	}
	c := Client(nc, o)
	if err := c.Handshake(ctx); err != nil {
		_ = c.Close()
		return nil, &outboard.Error{Op: "dial " + addr, Kind: outboard.KindOf(err), Err: err}
	}
	return c, nil
}

func newConn(nc net.Conn, o Options, first uint32) *Conn {
	o.setDefaults()
	c := &Conn{
		o: o, socket: newSocket(nc, o.TLS != nil, o.Observer), firstID: first, start: time.Now(),
		streams:    make(map[uint32]*Stream),
		budget:     o.Budget,
		ownStreams: make(chan struct{}, o.MaxStreams),
		accepts:    make(chan *Stream, min(o.MaxStreams, maxUnaccepted)),
		ready:      make(chan struct{}),
		done:       make(chan struct{}),
		readEnded:  make(chan struct{}),
	}
	c.rw = c.socket
	switch {
	case o.TLS != nil && first == 1:
		c.rw = tls.Client(c.socket, o.TLS)
	case o.TLS != nil:
		c.rw = tls.Server(c.socket, o.TLS)
	}
	c.out.conn, c.live.conn = c, c
	c.out.queue.init(first)
	c.out.lock.init()
	c.handover.wake = make(chan struct{}, 1)
	c.socket.beforeRead = c.out.flushBeforeRead
	o.Observer.ConnOpened(c)
	c.loops.Go(c.readLoop)
	c.loops.Go(c.out.flushLoop)
	c.loops.Go(c.live.keepAlive)
	return c
}

// Handshake waits for the end of the TLS handshake. Without TLS it returns at once. It is optional:
// other methods wait if they have to.
func (c *Conn) Handshake(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isReady reports whether the handshake has ended.
func (c *Conn) isReady() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// Peer returns the peer's certificate chain, leaf first; nil before the end of the handshake and
// without TLS.
func (c *Conn) Peer() []*x509.Certificate {
	if !c.isReady() {
		return nil
	}
	for _, nc := range []net.Conn{c.rw, c.socket.Conn} {
		if t, ok := nc.(*tls.Conn); ok {
			return t.ConnectionState().PeerCertificates
		}
	}
	return nil
}

// LocalAddr returns the local address of the connection's socket.
func (c *Conn) LocalAddr() net.Addr { return c.socket.LocalAddr() }

// RemoteAddr returns the remote address of the connection's socket.
func (c *Conn) RemoteAddr() net.Addr { return c.socket.RemoteAddr() }

// RTT returns the smoothed round-trip time of pings; 0 before the first answer.
func (c *Conn) RTT() time.Duration { return time.Duration(c.live.rtt.Load()) }

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// MaxStreams returns the limit of open streams in each direction.
func (c *Conn) MaxStreams() int { return c.o.MaxStreams }

// Err returns why the connection ended, or nil while it lives.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Lost reports whether the connection has ended without the will of either side: the network or
// the peer's process is gone.
func (c *Conn) Lost() bool {
	err := c.Err()
	return err != nil && outboard.KindOf(err) == outboard.Unreachable && !errors.Is(err, ErrClosed) && !errors.Is(err, errPeerClosed)
}

// ErrClosed is returned for connections and streams that this side has closed.
var ErrClosed = &outboard.Error{Op: "fabric", Kind: outboard.Other, Err: net.ErrClosed}

// Close sends the queued frames and a GOAWAY, ends all streams and waits for the connection's
// goroutines.
func (c *Conn) Close() error {
	if c.closing.Swap(true) {
		<-c.done // another goroutine is in goAway
	} else if c.Err() == nil {
		c.goAway(outboard.Other, "")
	}
	c.fail(ErrClosed)
	c.loops.Wait()
	return nil
}

// goAway sends the queued frames and a GOAWAY, and waits for a moment until the peer closes:
// closing at once could discard bytes that the peer has not read yet.
func (c *Conn) goAway(kind outboard.Kind, text string) {
	linger := c.o.DeadAfter / 8
	_ = c.socket.SetWriteDeadline(time.Now().Add(linger))
	_ = c.out.queue.push(func(b []byte) []byte { return appendError(b, frameGoAway, 0, kind, text) }, false)
	c.out.flush()
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-c.readEnded:
	case <-timer.C:
	}
}

// fail ends the connection. The error of the first call is the connection's.
func (c *Conn) fail(err error) {
	c.failing.Do(func() {
		if c.closing.Load() {
			err = ErrClosed // the peer closes because of this side's GOAWAY
		}
		// A handshake that failed is Handshake's error.
		if outboard.KindOf(err) == outboard.Protocol && c.isReady() {
			c.o.Logger.Warn("peer broke the protocol", "peer", c.socket.RemoteAddr(), "err", err)
		}
		c.err = err
		streams := c.takeStreams() // before Done is closed: what is opened after it has never left
		c.o.Observer.ConnClosed(c, endOf(err, c.isReady()))
		close(c.done)
		_ = c.socket.Close()
		c.out.queue.end()
		for _, s := range streams {
			s.fail(err)
		}
	})
}

// unreachable converts an error of the socket.
func unreachable(err error) error {
	if _, ok := errors.AsType[*outboard.Error](err); ok {
		return err
	}
	return &outboard.Error{Op: "fabric", Kind: outboard.Unreachable, Err: err}
}

// Open begins a stream. It waits only while MaxStreams streams are open. The OPEN frame leaves
// with the first Write, Read or CloseWrite.
func (c *Conn) Open(ctx context.Context, method string, head []byte) (*Stream, error) {
	if err := checkOpen(method, head); err != nil {
		return nil, err
	}
	if err := c.acquireStream(ctx); err != nil {
		return nil, err
	}
	s, _, err := c.out.queue.open(c, Opening{Method: method, Header: head}, Piece{}, false)
	if err != nil {
		<-c.ownStreams
		return nil, err
	}
	return s, nil
}

func checkOpen(method string, head []byte) error {
	if method == "" || len(method) > maxMethod || 2+len(method)+len(head) > maxOpen {
		return outboard.Errorf(outboard.Invalid, "open "+method, "method of %d and header of %d bytes are too long", len(method), len(head))
	}
	return nil
}

// acquireStream waits until one more stream may be opened.
func (c *Conn) acquireStream(ctx context.Context) error {
	select {
	case c.ownStreams <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.ownStreams <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
		return c.err
	}
}

// Accept waits for the next stream of the peer.
func (c *Conn) Accept(ctx context.Context) (*Stream, error) {
	select {
	case s := <-c.accepts:
		return s, nil
	case <-c.done:
		return nil, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// register adds a stream to the table. It returns false if the connection has ended.
func (c *Conn) register(s *Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams == nil {
		return false
	}
	c.streams[s.id] = s
	c.o.Observer.StreamOpened(true)
	return true
}

// takeStreams returns the open streams; none can be registered afterwards.
func (c *Conn) takeStreams() map[uint32]*Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	streams := c.streams
	c.streams = nil
	return streams
}

// unregister removes a stream that has ended, and returns its borrowed window.
func (c *Conn) unregister(s *Stream, extra int) {
	c.mu.Lock()
	delete(c.streams, s.id)
	c.budget += extra
	c.mu.Unlock()
}

// isOwn reports whether this side opened the stream.
func (c *Conn) isOwn(id uint32) bool { return id&1 == c.firstID&1 }

// reserveBudget takes up to n bytes of window from the connection's budget.
func (c *Conn) reserveBudget(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.budget)
	c.budget -= n
	return n
}
