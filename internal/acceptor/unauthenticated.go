package acceptor

import (
	"net"
	"sync"

	"github.com/outboard-run/outboard"
)

// MaxUnauthenticated bounds the connections of one address whose peers have not authenticated yet, as
// do unauthenticatedPercent of the process's descriptors. It leaves room for the programs of a machine
// that begin at the same time. All addresses have unauthenticatedShares times as many, as Slots.
const MaxUnauthenticated = 512

const (
	unauthenticatedPercent = 10
	unauthenticatedShares  = 4
)

// Unauthenticated counts the connections of each address whose peers have not authenticated. Without
// a bound for them a stranger keeps all others waiting by connections on which it sends nothing. The
// zero value has none.
type Unauthenticated struct {
	begin sync.Once
	most  int
	open  *Slots
}

// Add counts a connection. The caller calls done when the peer has authenticated, or the connection
// has ended; later calls have no effect. An error says that the address has as many as it may have.
func (u *Unauthenticated) Add(from net.Addr) (done func(), err error) {
	u.begin.Do(func() {
		u.most = Share(MaxUnauthenticated, unauthenticatedPercent)
		u.open = NewSlots(unauthenticatedShares * u.most)
	})
	if done, err = u.open.acquire(holderAt(from), u.most); err != nil {
		return nil, outboard.Errorf(outboard.Busy, "accept", "too many connections have not authenticated yet: %w", err)
	}
	return done, nil
}
