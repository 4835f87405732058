package grpcconn

import (
	"time"

	"github.com/outboard-run/outboard"
)

// The rates below which a client delays a call, in bytes per second as shifts: 4 KiB of a request, 64
// KiB of a response.
const (
	slowestRequest  = 12
	slowestResponse = 16
)

// scheduleSweep has the calls checked after a part of the timeout. c.mu must be held.
func (c *Conn) scheduleSweep() {
	interval := c.options.Timeout / sweeps
	if c.sweeper == nil {
		c.sweeper = time.AfterFunc(interval, c.sweep)
		return
	}
	c.sweeper.Reset(interval)
}

// sweep ends the calls that the client delays for too long. A connection has sweeps while it has calls.
func (c *Conn) sweep() {
	c.mu.Lock()
	c.sweepCalls()
	ends := c.err != nil
	if c.sweeping = len(c.calls) > 0 && !ends; c.sweeping {
		c.scheduleSweep()
	}
	c.mu.Unlock()
	if ends {
		_ = c.Conn.Close() // the server's reader returns c.err
	}
}

// sweepCalls charges the calls for the time since the last sweep. c.mu must be held.
func (c *Conn) sweepCalls() {
	isStalled := c.isStalled()
	for _, call := range c.calls {
		switch {
		case call.isUnread():
			late := call.isLate(slowestResponse)
			if (late || isStalled) && !c.options.spares(call.client.Name) {
				c.endReader(call)
			}
		case call.isIncomplete() && call.isLate(slowestRequest):
			call.fail(SlowRequest, outboard.Errorf(outboard.Invalid, "", "the request arrives too slowly: %v is the longest that the server waits for it%s",
				c.options.Timeout, c.options.remedy()))
		}
	}
}

// endReader ends a call whose client does not read its response. After the handler has returned only
// the connection can end.
func (c *Conn) endReader(call *Call) {
	err := outboard.Errorf(outboard.Busy, "serve gRPC", "the client reads a response too slowly: %v is the longest that one waits%s",
		c.options.Timeout, c.options.remedy())
	if call.handled || call.failed != nil {
		c.fail(SlowResponse, err)
	} else {
		call.fail(SlowResponse, err)
	}
}

// spares reports whether slow readers of a client are tolerated at present.
func (o *Options) spares(client string) bool { return o.SpareReaders && !o.Budget.isScarce(client) }

// isStalled reports whether one Write has been in progress for the whole timeout.
func (c *Conn) isStalled() bool {
	writes := c.writes.Load()
	if writes%2 == 0 || writes != c.lastWrites {
		c.stalled = 0
	} else {
		c.stalled++
	}
	c.lastWrites = writes
	return c.stalled > sweeps
}

// isUnread reports whether the call waits for its client to read.
func (call *Call) isUnread() bool { return call.handled || call.sending > 0 }

// isIncomplete reports whether the call waits for its client to send the rest of a message.
func (call *Call) isIncomplete() bool {
	return !call.received && (!call.client.Streams || call.receiving && call.read > 0)
}

// isLate charges the call for the time since the last sweep, allows it the time for its bytes at a
// rate, and reports whether the client has made the server wait for too long.
func (call *Call) isLate(slowest int) bool {
	limit := call.conn.options.Timeout
	left := call.left + time.Duration(call.recent)*time.Second>>slowest - limit/sweeps
	call.left, call.recent = min(limit, max(left, 0)), 0
	return left <= 0
}
