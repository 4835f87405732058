package shared

import (
	"time"
	"unsafe"

	"github.com/outboard-run/outboard/fabric/call"
)

// Patient makes an end sleep until it is woken, so that a wake-up that is lost
// shows.
func Patient(o Options) Options {
	o.maxSleep = time.Hour
	return o
}

// Spread is for how many calls more an end that is closed would pass on the reader's
// role at once.
func Spread(c *Conn) int { return c.callee.readerRole.eager }

// Posted is how many descriptors an end has sent for its own calls.
func Posted(c *Conn) uint32 {
	p := c.caller.out
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.produced
}

// IsParked reports that the reader of the peer's calls waits without a thread.
func IsParked(c *Conn) bool { return c.callee.bell.Sleeper.Load() == 2 }

// IsMapped reports whether an end's memory is still mapped.
func IsMapped(c *Conn) bool { return c.region.refs.Load() > 0 }

// Cancel sends the cancellation of a call, as the goroutine does that ends calls with their contexts.
func Cancel(c *Conn) { c.caller.cancel(callID{}, call.Normal) }

// MaxRun is the size of the largest message that is sent from adjacent blocks of an end's heap.
func MaxRun(c *Conn) int { return c.region.maxRun() }

// IsInPlace reports whether data lies in the memory that both ends of a connection share.
func IsInPlace(c *Conn, data []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(c.region.base)
	return at < uintptr(c.region.size())
}
