package node

import (
	"net"
	"net/netip"
	"sync"

	"github.com/outboard-run/outboard"
)

// maxStrangers bounds the connections of one address whose peers have not authenticated yet. Of the
// maxPeers connections that a node serves, a stranger could keep all others waiting by connections on
// which it sends nothing.
const maxStrangers = 256

// strangers counts the connections of each address whose peers have not authenticated. The zero value
// has none.
type strangers struct {
	mu   sync.Mutex
	open map[netip.Addr]int
}

// add counts a connection. The caller calls the function when the peer is known, or the connection has
// ended; later calls have no effect. An error says that the address has too many.
func (s *strangers) add(from net.Addr) (known func(), err error) {
	at := sourceOf(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[at] >= maxStrangers {
		return nil, outboard.Errorf(outboard.Busy, "accept", "%d connections of this address have not authenticated yet, the most at once", maxStrangers)
	}
	if s.open == nil {
		s.open = map[netip.Addr]int{}
	}
	s.open[at]++
	return sync.OnceFunc(func() { s.remove(at) }), nil
}

func (s *strangers) remove(at netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[at]--; s.open[at] == 0 {
		delete(s.open, at)
	}
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
