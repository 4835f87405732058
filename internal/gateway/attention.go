package gateway

import (
	"errors"
	"os"
	"time"
)

// An attention is what is known of a plain connection's call under way, for whoever
// looks whether its client leaves meanwhile. Only calls that take long are listened
// for: a read that waits beside each call would cost more than most calls do.
//
// It is guarded by the connection's lock.
type attention struct {
	number uint64 // of the call
	seen   uint64 // the call that was under way at the last look
	under  bool   // it is under way
	ear    *ear   // nil: nobody listens
}

// An ear reads from a connection during a call.
type ear struct {
	heard [1]byte
	n     int
	err   error
	done  chan struct{}
}

// begin notes that a call begins.
func (c *handedConn) begin() {
	c.mu.Lock()
	c.call.number++
	c.call.under, c.phase = true, calls
	_ = c.read.set(time.Time{}, c.Conn.SetReadDeadline) // a connection that is closed is found so later
	c.mu.Unlock()
	c.watch.began()
}

// end notes that the call ended. It returns what was heard meanwhile: the next
// request's first byte, or that the client is gone.
func (c *handedConn) end() (next []byte, gone bool) {
	c.mu.Lock()
	e := c.call.ear
	c.call.under, c.call.ear = false, nil
	c.mu.Unlock()
	if e == nil {
		return nil, false
	}
	_ = c.SetReadDeadline(past()) // whoever listens stops
	<-e.done
	_ = c.SetReadDeadline(time.Time{})
	return e.heard[:e.n], e.gone()
}

// attend listens to a connection whose call was under way at the last look already. It
// returns whether there is a call.
func (c *handedConn) attend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.call
	busy := a.number != a.seen || a.under
	if a.under && a.number == a.seen && a.ear == nil {
		a.ear = &ear{done: make(chan struct{})}
		go a.ear.listen(c.plain) // end waits for it
	}
	a.seen = a.number
	return busy
}

// listen ends the call when the client leaves.
func (e *ear) listen(p *plainConn) {
	defer close(e.done)
	if e.n, e.err = p.conn.Conn.Read(e.heard[:]); e.gone() {
		p.giveUp()
	}
}

func (e *ear) gone() bool { return e.err != nil && !errors.Is(e.err, os.ErrDeadlineExceeded) }
