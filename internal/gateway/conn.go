package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A handedConn gives what was read of a connection before, and bounds how long a
// write may take.
//
// net/http sets a deadline several times for each request. In the runtime each is a
// timer and may wake a thread, which costs more than the rest of a small request. So
// deadlines in the future are only noted here, and one goroutine looks for those that
// passed.
type handedConn struct {
	net.Conn
	first    []byte
	patience time.Duration
	watch    *watch

	mu          sync.Mutex
	read, write deadline
	plain       *plainConn // nil while net/http has the connection
	phase       phase
	stopping    atomic.Bool // no new request is read
	idle        bool        // net/http has the connection, and no request of it
	call        attention
}

// A deadline is one that the connection itself does not know until it passed.
type deadline struct {
	at     time.Time // zero: none
	passed bool      // the connection has one in the past
}

// past is any time that is over.
func past() time.Time { return time.Unix(1, 0) }

// longAgo is before all deadlines that are meant as such: one before it is there to
// end a read or write at once.
const longAgo = 1 << 20

// set notes a deadline. to sets the connection's.
func (d *deadline) set(t time.Time, to func(time.Time) error) error {
	over := !t.IsZero() && t.Unix() < longAgo
	if d.at = t; over == d.passed {
		return nil
	}
	d.passed = over
	if over {
		return to(past())
	}
	return to(time.Time{})
}

// check makes a deadline known that passed.
func (d *deadline) check(now time.Time, to func(time.Time) error) error {
	if d.passed || d.at.IsZero() || now.Before(d.at) {
		return nil
	}
	d.passed = true
	return to(past())
}

// Read implements net.Conn.
func (c *handedConn) Read(b []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	if c.first = c.first[n:]; len(c.first) == 0 {
		c.first = nil
	}
	return n, nil
}

// piece is how much must move within the patience.
const piece = 256 << 10

// Write implements net.Conn.
func (c *handedConn) Write(b []byte) (n int, err error) {
	for {
		m, err := c.writePiece(b[n:min(len(b), n+piece)])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

func (c *handedConn) writePiece(b []byte) (int, error) {
	if err := c.SetWriteDeadline(c.watch.clock().Add(c.patience)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		return n, err
	}
	return n, c.SetWriteDeadline(time.Time{})
}

// SetReadDeadline implements net.Conn. It passes up to a second late.
func (c *handedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read.set(t, c.Conn.SetReadDeadline)
}

// SetWriteDeadline implements net.Conn. Each write has one of its own.
func (c *handedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write.set(t, c.Conn.SetWriteDeadline)
}

// SetDeadline implements net.Conn.
func (c *handedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *handedConn) check(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A connection that is closed has no deadlines, and that is well.
	_ = c.read.check(now, c.Conn.SetReadDeadline)
	_ = c.write.check(now, c.Conn.SetWriteDeadline)
}

// Close implements net.Conn.
func (c *handedConn) Close() error {
	c.watch.remove(c)
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection whose client still sends.
func (c *handedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return io.ErrClosedPipe
}

// A watch knows all connections, and finds deadlines that passed.
type watch struct {
	limit     int
	now       atomic.Pointer[moment] // as of the last look; nil before the first
	attending atomic.Bool            // somebody looks after calls
	calls     chan struct{}          // has room for one: a call began and nobody looks
	mu        sync.Mutex
	conns     map[*handedConn]struct{}
}

// add says false when there are too many connections.
func (w *watch) add(c *handedConn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.conns) >= w.limit {
		return false
	}
	w.conns[c] = struct{}{}
	return true
}

func (w *watch) remove(c *handedConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

// clock is the time, or up to a second before it.
func (w *watch) clock() time.Time { return w.moment().at }

func (w *watch) moment() *moment {
	if now := w.now.Load(); now != nil {
		return now
	}
	return momentOf(time.Now())
}

// attentive is how long a call takes before somebody listens whether its client leaves.
const attentive = 50 * time.Millisecond

// run looks for deadlines once a second until ctx ends, and after calls while there are
// any.
func (w *watch) run(ctx context.Context) {
	ticks, often := time.NewTicker(time.Second), time.NewTimer(attentive)
	defer ticks.Stop()
	defer often.Stop()
	defer w.now.Store(nil) // nobody looks any more
	for {
		select {
		case now := <-ticks.C:
			w.check(now)
		case <-w.calls:
			often.Reset(attentive)
		case <-often.C:
			w.attending.Store(false)
			if w.attend() {
				w.attending.Store(true)
				often.Reset(attentive)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) check(now time.Time) {
	w.now.Store(momentOf(now))
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.check(now)
	}
}

// began has somebody look after calls.
func (w *watch) began() {
	if w.attending.Load() || w.attending.Swap(true) {
		return
	}
	select {
	case w.calls <- struct{}{}:
	default: // it is known
	}
}

// giveUp ends all plain connections at once.
func (w *watch) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.giveUp()
	}
}

// attend looks at the calls of all connections. It returns false when there was none
// since the last time.
func (w *watch) attend() (some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		some = c.attend() || some
	}
	return some
}
