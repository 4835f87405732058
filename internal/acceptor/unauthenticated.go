package acceptor

import (
	"net"
	"net/netip"
	"sync"

	"github.com/outboard-run/outboard"
)

// MaxUnauthenticated bounds the connections of one address whose peers have not authenticated yet, as
// do unauthenticatedPercent of the process's descriptors. It leaves room for the programs of a machine
// that begin at the same time.
const MaxUnauthenticated = 512

const unauthenticatedPercent = 10

// Unauthenticated counts the connections of each address whose peers have not authenticated. Without
// a bound for them a stranger keeps all others waiting by connections on which it sends nothing. The
// zero value has none.
type Unauthenticated struct {
	mu   sync.Mutex
	open map[netip.Addr]int
}

// Add counts a connection. The caller calls done when the peer has authenticated, or the connection
// has ended; later calls have no effect. An error says that the address has as many as it may have.
func (u *Unauthenticated) Add(from net.Addr) (done func(), err error) {
	at, most := sourceOf(from), Share(MaxUnauthenticated, unauthenticatedPercent)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[at] >= most {
		return nil, outboard.Errorf(outboard.Busy, "accept", "%d connections of this address have not authenticated yet, the most at once", most)
	}
	if u.open == nil {
		u.open = map[netip.Addr]int{}
	}
	u.open[at]++
	return sync.OnceFunc(func() { u.remove(at) }), nil
}

func (u *Unauthenticated) remove(at netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[at]--; u.open[at] == 0 {
		delete(u.open, at)
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
