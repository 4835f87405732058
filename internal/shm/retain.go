package shm

import "time"

// The methods below let one goroutine read a ring while another releases the bytes read, for
// consumers that keep bytes until their receipt is acknowledged. The goroutines must not call
// TryNext, Release and AnnounceSpace at the same time; AwaitBeyond may run beside any of them.

// relaySpare is the number of processors that a relay leaves while it spins for long: one for the
// reader of its connection, and one for the program or the worker on this machine. These are in
// other control groups, to which a thread can't yield: sched_yield(2) chooses within a group.
const relaySpare = 2

// AwaitBeyond waits until the peer has published more than n bytes since this end was opened, the
// ring is closed, Wake is called, or a second has passed. The caller then checks with TryNext.
func (r *Ring) AwaitBeyond(n uint64) {
	c := &r.in
	ready := func() bool {
		_, closed := r.Closed()
		return closed || c.direction.head.Load()-c.opened > n
	}
	begin := time.Now()
	if !c.patience.spinBeside(relaySpare, ready) {
		sleep(c.data, c.dataSleeper, r.dataLimit, ready)
	}
	c.patience.observe(time.Since(begin))
}

// Wake ends an AwaitBeyond of this end.
func (r *Ring) Wake() { ringAlways(r.in.data, r.in.dataSleeper) }

// AwaitSpace waits until at least least bytes are free, the ring is closed, or 10 ms have passed.
// The caller then checks with TryReserve.
func (r *Ring) AwaitSpace(least int) { r.awaitSpace(uint64(max(least, 1))) }

// AnnounceSpace tells the peer about all released space.
func (r *Ring) AnnounceSpace() { r.announceSpace() }

// Err returns nil while the ring is open, io.EOF after a clean close, and otherwise an error of the
// reason's kind.
func (r *Ring) Err() error {
	reason, closed := r.Closed()
	if !closed {
		return nil
	}
	return reason.Err()
}
