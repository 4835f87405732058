package framed

import "time"

// receiveWindow is the flow-control window that one stream grants to the peer. The stream's mu
// guards it.
type receiveWindow struct {
	conn      *Conn
	size      int
	borrowed  int       // the part of size that comes from the connection's budget
	credit    int       // bytes that the peer may still send
	consumed  int       // bytes read since the last grant
	lastGrant time.Time // when the window was last considered for growth
}

// grant returns the bytes consumed, and the growth of the window, as credit for the peer.
func (w *receiveWindow) grant() int {
	credit := w.consumed
	w.consumed = 0
	if more := w.increase(); more > 0 {
		more = w.conn.reserveBudget(more)
		w.size += more
		w.borrowed += more
		credit += more
	}
	w.credit += credit
	return credit
}

// expect returns the credit with which the peer can send n bytes without waiting for more, in addition
// to its present credit. The connection's budget and expectable bound the widening.
func (w *receiveWindow) expect(n int) (grant int) {
	if w.credit >= n {
		return 0
	}
	grant, w.consumed = w.consumed, 0
	if more := min(n-w.credit-grant, w.expectable()-w.size); more > 0 {
		more = w.conn.reserveBudget(more)
		w.size += more
		w.borrowed += more
		grant += more
	}
	w.credit += grant
	return grant
}

// highestRate is the most that a connection with TLS carries, in bytes per second.
const highestRate = 2 << 30

// expectable returns the window with which a sender at the highest rate waits for no credit: the
// bytes of a round trip. More of a long message would only fill queues in front of other streams'
// frames (measured on loopback: calls of 64 B beside messages of 16 MiB took three times as long).
func (w *receiveWindow) expectable() int {
	trip := int(w.conn.live.shortestRTT().Seconds() * highestRate)
	return min(max(trip, secondWindow), w.conn.o.Window)
}

// secondWindow is the window of a stream that has used up its first window.
const secondWindow = 512 << 10

// increase returns the number of bytes by which to widen the window. A window is wide enough when
// half of it lasts for more than two round trips: a wider one would only fill queues in front of
// other streams' frames.
func (w *receiveWindow) increase() int {
	most := w.conn.o.Window - w.size
	if w.conn.o.BothWays {
		return most
	}
	if w.size < secondWindow {
		return min(most, secondWindow-w.size)
	}
	now := time.Now()
	last := w.lastGrant
	w.lastGrant = now
	if last.IsZero() || now.Sub(last) > 2*w.conn.live.shortestRTT() {
		return 0
	}
	return min(most, w.size)
}
