package acceptor

import (
	"net"
	"net/netip"
	"sync"

	"github.com/outboard-run/outboard"
)

// Slots bounds the connections that a service holds at a time, and those of each address by a dynamic
// threshold (Choudhury and Hahne, IEEE/ACM Transactions on Networking, 1998): an address may hold one
// more only while it holds fewer than are free. So one address holds half of the slots at most, also
// while it is alone, and a second one half of what is left. Peers without an IP address, such as
// processes of this machine, have no such threshold.
type Slots struct {
	size int
	mu   sync.Mutex
	used int
	held map[netip.Addr]int
}

// NewSlots returns slots for so many connections, 1 at least.
func NewSlots(size int) *Slots {
	return &Slots{size: max(size, 1), held: map[netip.Addr]int{}}
}

// Size returns how many connections there may be at a time.
func (s *Slots) Size() int { return s.size }

// Used returns how many connections there are.
func (s *Slots) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Acquire counts a connection. The caller calls release when it has ended; later calls have no effect.
// An error has the kind outboard.Busy.
func (s *Slots) Acquire(from net.Addr) (release func(), err error) {
	at := sourceOf(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch held := s.held[at]; {
	case s.used >= s.size:
		return nil, outboard.Errorf(outboard.Busy, "serve a connection", "%d are open, the most at once", s.size)
	case at.IsValid() && held >= s.size-s.used:
		return nil, outboard.Errorf(outboard.Busy, "serve a connection",
			"%d of this address are open, and the other %d are for clients at other addresses", held, s.size-s.used)
	}
	s.used++
	s.held[at]++
	return sync.OnceFunc(func() { s.release(at) }), nil
}

func (s *Slots) release(at netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.held[at]--; s.held[at] == 0 {
		delete(s.held, at)
	}
}
