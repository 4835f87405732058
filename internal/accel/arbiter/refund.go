package arbiter

import "time"

// idleness is the time of its turns for which a session was charged although none of its threads
// ran. It is refunded as far as one of its threads waited for a processor, which other programs
// used meanwhile.
type idleness struct {
	usedAt   time.Duration // processor time at the start of the turn that the session holds
	waitedAt time.Duration // Waited when it was last read
	idle     time.Duration // charged and not refunded, at most maxIdleness quanta
}

// maxIdleness bounds, in quanta, the time that a session may be refunded at once, and so for how
// long it then delays others. A thread of a machine with a load of ten for each processor waits some
// 30 ms before it runs, and several threads may wait one after the other.
const maxIdleness = 64

// resetIdleness forgets what the session waited for before the device was contended.
func (a *Arbiter) resetIdleness(s *session) {
	if a.opts.Processors != nil {
		s.waitedAt, s.idle = a.opts.Processors.Waited(s.id), 0
	}
}

// beginIdleness starts a turn of the session.
func (a *Arbiter) beginIdleness(s *session) {
	if a.opts.Processors != nil {
		s.usedAt = a.opts.Processors.Used(s.id)
	}
}

// refund returns the part of what s was charged in which other programs had the processors, also
// while a message about its turn waited for the thread that reads it. charged is the charge for the
// turn that ends. The wait of a thread is known only when the thread runs again, so the refund may
// be for earlier turns as well.
//
// A session whose threads sleep in its turns has waited for nothing. One that starts threads which
// wait for each other, on one processor, computes for as long as any of them waits: its refunds
// are no more than that, so it is charged for at least half of its turns.
func (a *Arbiter) refund(s *session, charged time.Duration) time.Duration {
	if a.opts.Processors == nil {
		return 0
	}
	idle := charged - (a.opts.Processors.Used(s.id) - s.usedAt)
	if idle <= charged/4 { // gaps between short messages: reading the waits takes longer
		return 0
	}
	waited := a.opts.Processors.Waited(s.id)
	s.idle = min(s.idle+idle, maxIdleness*a.opts.Quantum)
	refund := min(s.idle, max(waited-s.waitedAt, 0))
	s.idle -= refund
	s.waitedAt = max(waited, s.waitedAt)
	return refund
}
