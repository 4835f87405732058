package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard/internal/acceptor"
)

// clientConn replays the bytes that were read from a connection before, and bounds how long a write
// may take.
//
// net/http sets a deadline several times for each request. In the runtime each deadline is a timer
// and may wake a thread, which costs more than the rest of a small request. So deadlines in the
// future are only recorded here, and one goroutine applies the expired ones.
type clientConn struct {
	net.Conn
	prefix  []byte
	pace    pace
	watch   *connTable
	release func()       // frees the connection's slot; set by connTable.add
	lengths lengthFields // of the requests that net/http reads
	// unreadable are requests that net/http can't read.
	unreadable unreadable

	mu          sync.Mutex
	read, write deadline
	plain       *plainConn // nil while net/http has the connection
	phase       phase
	stopping    atomic.Bool // no new request is read
	idle        bool        // net/http has the connection, and no request from it
	pending     pendingCall
}

// deadline is a deadline that is applied to the connection only when it has expired.
type deadline struct {
	at      time.Time // zero: none
	expired bool      // it is applied to the connection
}

// past returns a time in the past.
func past() time.Time { return time.Unix(1, 0) }

// immediateBefore separates deadlines from times in the past, before it, that end a read or write
// at once.
const immediateBefore = 1 << 20

// set records a deadline. to applies a time to the connection.
func (d *deadline) set(t time.Time, to func(time.Time) error) error {
	over := !t.IsZero() && t.Unix() < immediateBefore
	if d.at = t; over == d.expired {
		return nil
	}
	d.expired = over
	if over {
		return to(past())
	}
	return to(time.Time{})
}

// expire applies a deadline to the connection if it has expired.
func (d *deadline) expire(now time.Time, to func(time.Time) error) error {
	if d.expired || d.at.IsZero() || now.Before(d.at) {
		return nil
	}
	d.expired = true
	return to(past())
}

// Read implements net.Conn.
func (c *clientConn) Read(b []byte) (int, error) {
	n, err := c.readNext(b)
	c.lengths.scan(b[:n])
	return n, err
}

func (c *clientConn) readNext(b []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.prefix)
	if c.prefix = c.prefix[n:]; len(c.prefix) == 0 {
		c.prefix = nil
	}
	return n, nil
}

// piece is how many bytes are written at once. Each piece that the client reads extends its time.
const piece = 256 << 10

// Write implements net.Conn.
func (c *clientConn) Write(b []byte) (int, error) { return c.unreadable.write(b, c.writePieces) }

func (c *clientConn) writePieces(b []byte) (n int, err error) {
	for {
		m, err := c.writePiece(b[n:min(len(b), n+piece)])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

func (c *clientConn) writePiece(b []byte) (int, error) {
	begin := c.watch.clock()
	if err := c.SetWriteDeadline(begin.Add(c.pace.left(len(b)))); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err := c.pace.charge(n, c.watch.clock().Sub(begin), err); err != nil {
		return n, err
	}
	return n, c.SetWriteDeadline(time.Time{})
}

// SetReadDeadline implements net.Conn. It expires up to a second late.
func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read.set(t, c.Conn.SetReadDeadline)
}

// SetWriteDeadline implements net.Conn. Each write sets its own.
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write.set(t, c.Conn.SetWriteDeadline)
}

// SetDeadline implements net.Conn.
func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *clientConn) expireDeadlines(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A closed connection has no deadlines.
	_ = c.read.expire(now, c.Conn.SetReadDeadline)
	_ = c.write.expire(now, c.Conn.SetWriteDeadline)
}

// Close implements net.Conn.
func (c *clientConn) Close() error {
	c.watch.remove(c)
	return c.Conn.Close()
}

// CloseWrite lets net/http close a connection whose client still sends.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return io.ErrClosedPipe
}

// connTable holds all connections of clients, and expires their deadlines.
type connTable struct {
	slots     *acceptor.Slots
	now       atomic.Pointer[moment] // of the last check; nil before the first
	polling   atomic.Bool            // calls are being polled
	callBegan chan struct{}          // capacity 1: a call began while none was polled
	mu        sync.Mutex
	conns     map[*clientConn]struct{}
}

// add returns an error if there are too many connections, or too many of the client's address.
func (w *connTable) add(c *clientConn) (err error) {
	if c.release, err = w.slots.Acquire(c.RemoteAddr()); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = struct{}{}
	return nil
}

// remove removes a connection that was added. It may be called again.
func (w *connTable) remove(c *clientConn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
	c.release()
}

// clock returns the time, or up to a second before it.
func (w *connTable) clock() time.Time { return w.moment().at }

func (w *connTable) moment() *moment {
	if now := w.now.Load(); now != nil {
		return now
	}
	return momentOf(time.Now())
}

// pollInterval is how often calls are polled: a call that is running at two polls is watched.
const pollInterval = 50 * time.Millisecond

// run expires deadlines once a second until ctx ends, and polls calls while calls are in progress.
func (w *connTable) run(ctx context.Context) {
	ticks, often := time.NewTicker(time.Second), time.NewTimer(pollInterval)
	defer ticks.Stop()
	defer often.Stop()
	defer w.now.Store(nil) // the clock stops
	for {
		select {
		case now := <-ticks.C:
			w.expireDeadlines(now)
		case <-w.callBegan:
			often.Reset(pollInterval)
		case <-often.C:
			w.polling.Store(false)
			if w.pollCalls() {
				w.polling.Store(true)
				often.Reset(pollInterval)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *connTable) expireDeadlines(now time.Time) {
	w.now.Store(momentOf(now))
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.expireDeadlines(now)
	}
}

// notifyCall starts the polling of calls.
func (w *connTable) notifyCall() {
	if w.polling.Load() || w.polling.Swap(true) {
		return
	}
	select {
	case w.callBegan <- struct{}{}:
	default: // run is awake already
	}
}

// abortAll ends all plain connections at once.
func (w *connTable) abortAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.abort()
	}
}

// pollCalls polls the calls of all connections. It returns false if there was no call since the
// last poll.
func (w *connTable) pollCalls() (some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		some = c.pollCall() || some
	}
	return some
}
