package shared

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A reader that sleeps on a futex occupies an operating system thread. That is the fastest way to
// wake it, but a node with thousands of idle programs would have thousands of threads. So a reader
// whose bell did not ring for parkAfter parks: it waits on a channel, and the peer, which finds
// "parked" in place of "asleep" in shared memory, writes byteRing to the socket. The goroutine that
// watches the socket, which occupies no thread, wakes the reader.
const (
	// parkAfter is how long a reader sleeps on the futex before it parks.
	parkAfter = 10 * time.Millisecond
	// parkedSleeps bounds how long a reader stays parked, in multiples of its longest sleep on the
	// futex. As with maxSleep, only a peer that tampers with the bells makes the bound necessary.
	parkedSleeps = 20
	// byteRing is the byte on the socket that wakes the parked readers of the receiver.
	byteRing = 'B'
)

// sleep waits until the bell rings after old, or its time limit has passed. Only the reader calls
// it.
//
// A goroutine that the reader has made runnable is in the queue of the reader's own processor, which
// the reader holds while it spins, and for a while when it sleeps: it would run only after another
// processor has stolen it. So it runs first.
func (e *laneEnd) sleep(old uint32) {
	if e.woke.Swap(false) {
		runtime.Gosched()
	}
	limit := e.conn.options.maxSleep
	switch {
	case !e.conn.parks:
		e.bell.Sleep(&e.waits, old, limit)
	case e.quiet:
		e.bell.Park(old, e.rung, parkedSleeps*limit)
	default:
		e.bell.Sleep(&e.waits, old, min(parkAfter, limit))
	}
	e.quiet = e.bell.Now() == old
}

// ringParked wakes the reader if it is parked, and otherwise before it parks the next time.
func (e *laneEnd) ringParked() {
	select {
	case e.rung <- struct{}{}:
	default:
	}
}

// notifyPeer wakes the parked readers of the peer. It never blocks: a full socket has bytes that
// will wake them.
func (c *Conn) notifyPeer() {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Sendto(int(fd), []byte{byteRing}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	})
}
