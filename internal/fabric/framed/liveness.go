package framed

import (
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// liveness sends pings, measures round trips and detects a dead peer.
type liveness struct {
	conn   *Conn
	pongs  int          // received so far; owned by the reader
	rtt    atomic.Int64 // smoothed, in nanoseconds
	minRTT atomic.Int64
}

// writeLimit is how long one write may take: 256 KiB at most, over 10 kbit/s. A peer reads whatever
// arrives, since streams have windows: one that reads nothing, and is not silent, would keep this
// side's senders, and the memory from which they send, for ever.
const writeLimit = 5 * time.Minute

// keepAlive sends pings, and ends the connection when the peer is silent or reads nothing. It counts
// its own ticks instead of the clock: a process that was stopped for a while must not take its peer
// for dead.
func (l *liveness) keepAlive() {
	const ticks = 8
	interval := l.conn.o.DeadAfter / ticks
	tick := time.NewTicker(interval)
	defer tick.Stop()
	l.ping()
	writes, blocked := uint64(0), time.Duration(0)
	for silent, n := 0, 1; ; n++ {
		select {
		case <-l.conn.done:
			return
		case <-tick.C:
		}
		silent++
		if l.conn.socket.received.Swap(false) {
			silent = 0
		}
		if silent >= ticks-1 {
			l.conn.fail(outboard.Errorf(outboard.Unreachable, "fabric", "peer has been silent for %v", l.conn.o.DeadAfter))
			return
		}
		if now := l.conn.socket.writes.Load(); now != writes || now%2 == 0 {
			writes, blocked = now, 0
		} else if blocked += interval; blocked >= writeLimit {
			l.conn.fail(outboard.Errorf(outboard.Unreachable, "fabric", "peer has read nothing for %v", writeLimit))
			return
		}
		if n%2 == 0 {
			l.ping()
		}
	}
}

func (l *liveness) ping() { _ = l.conn.out.queue.push(l.appendPing, true) }

func (l *liveness) appendPing(b []byte) []byte {
	return appendPing(b, framePing, uint64(time.Since(l.conn.start)))
}

// handlePong updates the round-trip time. Implausible samples are ignored.
func (l *liveness) handlePong(stamp uint64) {
	sample := int64(time.Since(l.conn.start)) - int64(stamp)
	if sample <= 0 || sample > int64(l.conn.o.DeadAfter) {
		return
	}
	l.conn.o.Observer.RoundTrip(time.Duration(sample))
	if least := l.minRTT.Load(); least == 0 || sample < least {
		l.minRTT.Store(sample)
	}
	if old := l.rtt.Load(); old > 0 {
		sample = old + (sample-old)/8
	}
	l.rtt.Store(sample)
	if l.pongs++; l.pongs < initialPings {
		_ = l.conn.out.queue.push(l.appendPing, false)
	}
}

// initialPings is the number of pings that follow each other at the start, while the connection is
// idle: later pongs queue behind other streams' frames, and an overestimated round trip widens
// windows until round trips are as long.
const initialPings = 8

// shortestRTT returns the shortest round trip so far, or a second before the first.
func (l *liveness) shortestRTT() time.Duration {
	if least := l.minRTT.Load(); least > 0 {
		return time.Duration(least)
	}
	return time.Second
}
