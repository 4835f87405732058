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
// while it is alone, and a second one half of what is left. The addresses of a site (siteOf) may hold
// one more only while they hold fewer than three times as many: three quarters at most. Peers without
// an IP address, such as processes of this machine, have no such threshold.
type Slots struct {
	size int
	mu   sync.Mutex
	used int
	held map[string]int // by the names of holders and of their sites
}

// A holder is the peer for which connections count.
type holder struct {
	name, site   string // "": without a threshold
	what, others string // for errors
}

// NewSlots returns slots for so many connections, 1 at least.
func NewSlots(size int) *Slots {
	return &Slots{size: max(size, 1), held: map[string]int{}}
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
	return s.acquire(holderAt(from), s.size)
}

// AcquireFor is Acquire for a connection whose peer has authenticated as a node.
func (s *Slots) AcquireFor(node outboard.NodeID) (release func(), err error) {
	return s.acquire(holder{name: "node " + string(node), what: "node", others: "other nodes"}, s.size)
}

// acquire counts a connection of a holder that may have so many.
func (s *Slots) acquire(h holder, most int) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.size - s.used
	switch held := s.held[h.name]; {
	case free == 0:
		return nil, outboard.Errorf(outboard.Busy, "serve a connection", "%d are open, the most at once", s.size)
	case h.name != "" && held >= min(free, most):
		return nil, outboard.Errorf(outboard.Busy, "serve a connection",
			"%d of this %s are open, and the other %d are for %s", held, h.what, free, h.others)
	case h.site != "" && s.held[h.site] >= siteShare*free:
		return nil, outboard.Errorf(outboard.Busy, "serve a connection",
			"%d of the network %s are open, and the other %d are for clients at other addresses", s.held[h.site], h.site, free)
	}
	s.add(h, 1)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(h, -1)
	}), nil
}

// add counts n more connections of a holder. s.mu must be held.
func (s *Slots) add(h holder, n int) {
	s.used += n
	for _, name := range []string{h.name, h.site} {
		if s.held[name] += n; s.held[name] == 0 {
			delete(s.held, name)
		}
	}
}

// siteShare is how many times as many slots as are free the addresses of a site may hold.
const siteShare = 3

// holderAt returns the holder of a connection from an address.
func holderAt(from net.Addr) holder {
	at := sourceOf(from)
	if !at.IsValid() {
		return holder{}
	}
	return holder{at.String(), siteOf(at).String(), "address", "clients at other addresses"}
}

// sourceOf returns the address of a connection's peer: of IPv6 the network, of which a machine may
// have all addresses.
func sourceOf(from net.Addr) netip.Addr {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	at := tcp.AddrPort().Addr().Unmap().WithZone("")
	if at.Is6() {
		network, _ := at.Prefix(64) // never fails
		return network.Addr()
	}
	return at
}

// siteOf returns the network of which one client may have many addresses, as sourceOf returns them: a
// program of this machine has all of the loopback network, and a customer of a provider up to 65,536
// networks of IPv6 (RFC 6177). Other addresses of IPv4 are sites of their own.
func siteOf(at netip.Addr) netip.Prefix {
	bits := at.BitLen()
	switch {
	case at.IsLoopback():
		bits = 8
	case at.Is6():
		bits = 48
	}
	site, _ := at.Prefix(bits) // never fails
	return site
}
