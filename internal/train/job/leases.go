package job

import (
	"context"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// StandingLeases are the leases of the pool that stand. *pool.Pool implements it.
type StandingLeases interface {
	Leases() []outboard.Lease
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// A leaseKey names a lease of one device. Its holder chooses the ID, which may be that of another
// holder's lease.
type leaseKey struct {
	device outboard.DeviceID
	holder outboard.NodeID
	lease  outboard.LeaseID
}

func keyOfLease(l *outboard.Lease) leaseKey {
	return leaseKey{l.Device, l.Holder, l.Lease}
}

// reserveLeases reserves leases for a run. A lease bounds the memory, the processes and the ranks of
// one run: a manager that presents it twice, in one request or in several, is refused. A run that has
// sent its result, and still ends, may have the leases with which the job continues; it is waited for.
func (h *Host) reserveLeases(ctx context.Context, leases []outboard.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, reserveLimit)
	defer cancel()
	for i := range leases {
		key := keyOfLease(&leases[i])
		twice := slices.ContainsFunc(leases[:i], func(l outboard.Lease) bool { return keyOfLease(&l) == key })
		if twice || !h.reserveLease(ctx, key) {
			h.freeLeases(leases[:i])
			return outboard.Errorf(outboard.Conflict, "start ranks", "the lease of %s is in use by other ranks already", key.device)
		}
	}
	return nil
}

// reserveLimit is how long a run waits for another one that has its leases.
const reserveLimit = 5 * time.Second

// reserveLease reserves a lease once it is free, and reports false if it is not before ctx ends.
func (h *Host) reserveLease(ctx context.Context, key leaseKey) bool {
	for {
		h.mu.Lock()
		freed, taken := h.leased[key]
		if !taken {
			h.leased[key] = make(chan struct{})
		}
		h.mu.Unlock()
		if !taken {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (h *Host) freeLeases(leases []outboard.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range leases {
		key := keyOfLease(&leases[i])
		close(h.leased[key])
		delete(h.leased, key)
	}
}

const (
	// leaselessLimit is how long ranks may outlive a lease. The manager ends them before it releases
	// the lease, but the two messages arrive on different connections.
	leaselessLimit = 5 * time.Second
	// standingInterval is the interval at which leases are checked that have not changed: they may
	// have expired.
	standingInterval = time.Second
)

// awaitLeaseLoss waits until one of the leases does not stand any more and has not for
// leaselessLimit, and returns the error. It returns nil when ctx ends.
func (h *Host) awaitLeaseLoss(ctx context.Context, leases []outboard.Lease) error {
	if h.opts.Standing == nil {
		return nil
	}
	tick := time.NewTicker(standingInterval)
	defer tick.Stop()
	var since time.Time // when a lease was first missing; zero: all stand
	for {
		changed := h.opts.Standing.Changed()
		switch missing := missingLease(h.opts.Standing.Leases(), leases); {
		case missing == "":
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= leaselessLimit:
			return outboard.Errorf(outboard.LeaseLost, "training job", "the lease of %s was released or has expired", missing)
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// missingLease returns the device of the first lease that does not stand, "" if all stand. One whose
// holder has given it another size stands no more: the size limits the run's memory.
func missingLease(standing, leases []outboard.Lease) outboard.DeviceID {
	found := make(map[leaseKey]outboard.Bytes, len(standing))
	for i := range standing {
		found[keyOfLease(&standing[i])] = standing[i].Memory
	}
	for i := range leases {
		if size, ok := found[keyOfLease(&leases[i])]; !ok || size != leases[i].Memory {
			return leases[i].Device
		}
	}
	return ""
}
