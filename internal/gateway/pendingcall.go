package gateway

import (
	"errors"
	"os"
	"time"
)

// pendingCall is the call in progress of a plain connection, as far as needed to cancel it when the
// client disconnects. Only long calls are watched: a concurrent read during each call would cost
// more than most calls do. It is guarded by the connection's lock.
type pendingCall struct {
	number  uint64             // of the call
	seen    uint64             // the call that was running at the last poll
	running bool               // the call has not returned
	watcher *disconnectWatcher // nil: the connection is not watched
}

// disconnectWatcher reads from a connection during a call.
type disconnectWatcher struct {
	data [1]byte
	n    int
	err  error
	done chan struct{}
}

// beginCall records that a call begins.
func (c *clientConn) beginCall() {
	c.mu.Lock()
	c.pending.number++
	c.pending.running, c.phase = true, inCall
	_ = c.read.set(time.Time{}, c.Conn.SetReadDeadline) // the next read finds a closed connection
	c.mu.Unlock()
	c.watch.notifyCall()
}

// endCall records that the call ended. It returns the byte that was read meanwhile, the first one
// of the next request, and whether the client disconnected.
func (c *clientConn) endCall() (next []byte, disconnected bool) {
	c.mu.Lock()
	e := c.pending.watcher
	c.pending.running, c.pending.watcher = false, nil
	c.mu.Unlock()
	if e == nil {
		return nil, false
	}
	_ = c.SetReadDeadline(past()) // the watcher stops
	<-e.done
	_ = c.SetReadDeadline(time.Time{})
	return e.data[:e.n], e.disconnected()
}

// pollCall starts to watch a connection whose call was running at the last poll already. It reports
// whether there was a call since then.
func (c *clientConn) pollCall() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.pending
	busy := a.number != a.seen || a.running
	if a.running && a.number == a.seen && a.watcher == nil {
		a.watcher = &disconnectWatcher{done: make(chan struct{})}
		go a.watcher.watch(c.plain) // endCall waits for it
	}
	a.seen = a.number
	return busy
}

// watch cancels the call when the client disconnects.
func (e *disconnectWatcher) watch(p *plainConn) {
	defer close(e.done)
	if e.n, e.err = p.conn.Conn.Read(e.data[:]); e.disconnected() {
		p.cancelCall()
	}
}

func (e *disconnectWatcher) disconnected() bool {
	return e.err != nil && !errors.Is(e.err, os.ErrDeadlineExceeded)
}
