package node

import (
	"context"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/pool"
)

// A leaseKey names a lease with its size. Its holder writes all of these: it may give one lease the ID
// of another, or another size once it has a session, whose limit is the lease's when it began.
type leaseKey struct {
	device    outboard.DeviceID
	holder    outboard.NodeID
	lease     outboard.LeaseID
	memory    outboard.Bytes
	exclusive bool
}

func keyOfLease(l *outboard.Lease) leaseKey {
	return leaseKey{l.Device, l.Holder, l.Lease, l.Memory, l.Exclusive}
}

// A leaseGuard ends the sessions whose lease no longer stands. It records expiry and release times,
// to distinguish a released lease from a lost one.
type leaseGuard struct {
	pool *pool.Pool
	host *lend.Host

	expire   map[leaseKey]time.Time           // when the lease would have expired
	released map[outboard.SessionID]time.Time // when the session's lease was released
}

// run ends sessions until ctx ends.
func (g *leaseGuard) run(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		changed := g.pool.Changed()
		for _, s := range g.overdue(g.host.Sessions(), g.pool.Leases(), time.Now()) {
			s.End(outboard.Errorf(outboard.LeaseLost, "session", "the lease of %s by %s was released or expired", s.Device.ID, s.Lease.Holder))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// leaselessLimit is how long a session may outlive a released lease. The holder ends the session
// first, but the two messages arrive on different connections.
const leaselessLimit = 2 * time.Second

// overdue returns the sessions that have to end.
func (g *leaseGuard) overdue(sessions []*lend.Session, leases []outboard.Lease, now time.Time) (ends []*lend.Session) {
	standing := make(map[leaseKey]time.Time, len(leases))
	for i := range leases {
		standing[keyOfLease(&leases[i])] = leases[i].Expires
	}
	expire, released := map[leaseKey]time.Time{}, map[outboard.SessionID]time.Time{}
	for _, s := range sessions {
		id := keyOfLease(&s.Lease)
		if end, ok := standing[id]; ok {
			expire[id] = end
			continue
		}
		expire[id] = g.expire[id]
		since, ok := g.released[s.ID]
		if !ok && now.Before(expire[id]) {
			since, ok = now, true
		}
		if released[s.ID] = since; !ok || now.Sub(since) >= leaselessLimit {
			ends = append(ends, s)
		}
	}
	g.expire, g.released = expire, released
	return ends
}
