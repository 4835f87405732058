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

// A Conn is one connection to a peer, shared by many streams.
type Conn struct {
	o     Options
	pipe  *pipe
	rw    net.Conn // the pipe, or TLS over it
	first uint32   // the first id of this side: odd for the client
	start time.Time

	mu      sync.Mutex
	streams map[uint32]*Stream
	remote  uint32 // the greatest id that the peer has opened
	budget  int
	// acceptors take streams of their methods.
	acceptors map[string]*acceptor

	peers   atomic.Int32  // streams open that the peer began; changed with mu held
	slots   chan struct{} // one for each stream that we may open
	accepts chan *Stream

	// wire is held by whoever writes to rw.
	wire  turns
	queue queue
	shift shift

	pongs   int // the reader's
	rtt     atomic.Int64
	minTrip atomic.Int64
	ready   chan struct{} // closed when the handshake is over
	// isAgreed says the same for less.
	isAgreed atomic.Bool
	done     chan struct{}
	closing  atomic.Bool // by this side
	failing  sync.Once
	err      error // set before done is closed
	// readEnded is closed when the peer has hung up.
	readEnded chan struct{}
	loops     sync.WaitGroup
}

// Client starts the side of a connection that dialled.
func Client(nc net.Conn, o Options) *Conn { return newConn(nc, o, 1) }

// Server starts the side of a connection that accepted.
func Server(nc net.Conn, o Options) *Conn { return newConn(nc, o, 2) }

// Dial connects to addr over TCP with TLS and finishes the handshake. Both sides
// learn each other's certificates; t says which it trusts.
func Dial(ctx context.Context, addr string, t *tls.Config, o Options) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, &outboard.Error{Op: "dial " + addr, Kind: outboard.Unreachable, Err: err}
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
		o: o, pipe: newPipe(nc, o.Observer), first: first, start: time.Now(),
		streams:   make(map[uint32]*Stream),
		budget:    o.Budget,
		slots:     make(chan struct{}, o.MaxStreams),
		accepts:   make(chan *Stream, o.MaxStreams),
		ready:     make(chan struct{}),
		done:      make(chan struct{}),
		readEnded: make(chan struct{}),
	}
	c.rw = c.pipe
	switch {
	case o.TLS != nil && first == 1:
		c.rw = tls.Client(c.pipe, o.TLS)
	case o.TLS != nil:
		c.rw = tls.Server(c.pipe, o.TLS)
	}
	c.queue.init(first)
	c.wire.init()
	c.shift.wake = make(chan struct{}, 1)
	c.pipe.beforeRead = c.flushMeanwhile
	o.Observer.ConnOpened(c)
	c.loops.Go(c.readLoop)
	c.loops.Go(c.flushLoop)
	c.loops.Go(c.keepAlive)
	return c
}

// Handshake waits until TLS is agreed on. Without TLS it returns at once. Calls
// that come earlier wait by themselves.
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

// agreedYet says whether the handshake is over.
func (c *Conn) agreedYet() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// Peer returns the peer's certificates, its own first; nil before the handshake
// is over or without TLS.
func (c *Conn) Peer() []*x509.Certificate {
	if !c.agreedYet() {
		return nil
	}
	for _, nc := range []net.Conn{c.rw, c.pipe.Conn} {
		if t, ok := nc.(*tls.Conn); ok {
			return t.ConnectionState().PeerCertificates
		}
	}
	return nil
}

// RTT is the smoothed round-trip time of pings; 0 before the first answer.
func (c *Conn) RTT() time.Duration { return time.Duration(c.rtt.Load()) }

// quickest is the shortest round trip so far, long before there was one.
func (c *Conn) quickest() time.Duration {
	if least := c.minTrip.Load(); least > 0 {
		return time.Duration(least)
	}
	return time.Second
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// MaxStreams is how many streams may be open at once in each direction.
func (c *Conn) MaxStreams() int { return c.o.MaxStreams }

// Err says why the connection ended; nil while it lives.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// ErrClosed is what calls on a connection or stream return that this side closed.
var ErrClosed = &outboard.Error{Op: "fabric", Kind: outboard.Other, Err: net.ErrClosed}

// Close tells the peer, ends all streams and waits for the connection's
// goroutines. What was written before still reaches a peer that lives.
func (c *Conn) Close() error {
	if c.closing.Swap(true) {
		<-c.done // somebody else is saying goodbye
	} else if c.Err() == nil {
		c.goAway(outboard.Other, "")
	}
	c.fail(ErrClosed)
	c.loops.Wait()
	return nil
}

// goAway sends what is queued and a farewell, and waits a moment for the peer to
// hang up: closing at once could discard bytes that it has not read yet.
func (c *Conn) goAway(kind outboard.Kind, text string) {
	linger := c.o.DeadAfter / 8
	_ = c.pipe.SetWriteDeadline(time.Now().Add(linger))
	_ = c.queue.push(func(b []byte) []byte { return appendVerdict(b, frameGoAway, 0, kind, text) }, false)
	c.flush()
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-c.readEnded:
	case <-timer.C:
	}
}

// fail ends the connection; the first reason stands.
func (c *Conn) fail(err error) {
	c.failing.Do(func() {
		if c.closing.Load() {
			err = ErrClosed // the peer hangs up because we said goodbye
		}
		// Before, Handshake returns it.
		if outboard.KindOf(err) == outboard.Protocol && c.agreedYet() {
			c.o.Logger.Warn("peer broke the protocol", "peer", c.pipe.RemoteAddr(), "err", err)
		}
		c.err = err
		c.o.Observer.ConnClosed(c, endOf(err, c.agreedYet()))
		close(c.done)
		_ = c.pipe.Close()
		c.queue.end()
		c.mu.Lock()
		streams := c.streams
		c.streams = nil
		c.mu.Unlock()
		for _, s := range streams {
			s.lost(err)
		}
	})
}

// gone is the error for a connection that broke under us.
func gone(err error) error {
	if _, ok := errors.AsType[*outboard.Error](err); ok {
		return err
	}
	return &outboard.Error{Op: "fabric", Kind: outboard.Unreachable, Err: err}
}

// Open begins a stream. It waits only while MaxStreams streams are open. The
// peer learns of it with the first Write, Read or CloseWrite.
func (c *Conn) Open(ctx context.Context, method string, head []byte) (*Stream, error) {
	if err := checkOpen(method, head); err != nil {
		return nil, err
	}
	if err := c.takeSlot(ctx); err != nil {
		return nil, err
	}
	s, _, err := c.queue.open(c, Opening{Method: method, Header: head}, Piece{}, false)
	if err != nil {
		<-c.slots
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

// takeSlot waits until one more stream may be opened.
func (c *Conn) takeSlot(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
		return c.err
	}
}

// Accept waits for the peer's next stream.
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

// add makes a stream known; false when the connection has ended.
func (c *Conn) add(s *Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams == nil {
		return false
	}
	c.streams[s.id] = s
	c.o.Observer.StreamOpened(true)
	return true
}

// forget frees what a finished stream held.
func (c *Conn) forget(s *Stream, extra int) {
	c.mu.Lock()
	known := c.streams[s.id] == s
	delete(c.streams, s.id)
	c.budget += extra
	if known && !c.own(s.id) {
		c.peers.Add(-1)
	}
	c.mu.Unlock()
	if c.own(s.id) {
		<-c.slots
	}
}

// own says whether this side opened the stream.
func (c *Conn) own(id uint32) bool { return id&1 == c.first&1 }

// borrow takes up to n bytes of window from the connection's budget.
func (c *Conn) borrow(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.budget)
	c.budget -= n
	return n
}
