package job

import (
	"context"
	"sync"

	"github.com/outboard-run/outboard"
)

// heldLeases renews the leases of a node's devices until they are released, or a context ends. The
// next attempt of a job may take over the leases of the last one.
type heldLeases struct {
	stop     context.CancelFunc
	renewing sync.WaitGroup
	losing   sync.Once
	lost     chan struct{} // closed when a lease has been lost
	err      error         // the cause, once lost is closed
}

// holdLeases renews leases until they are released or ctx ends.
func holdLeases(ctx context.Context, pooled Leases, leases []outboard.Lease) *heldLeases {
	ctx, stop := context.WithCancel(ctx)
	h := &heldLeases{stop: stop, lost: make(chan struct{})}
	for _, l := range leases {
		h.renewing.Go(func() {
			if err := pooled.Hold(ctx, l); err != nil {
				h.losing.Do(func() {
					h.err = err
					close(h.lost)
				})
			}
		})
	}
	return h
}

// release gives the leases back, and waits until that is done.
func (h *heldLeases) release() {
	h.stop()
	h.renewing.Wait()
}

// watchLeases ends an attempt whose nodes lose a lease, until ctx ends.
func watchLeases(ctx context.Context, nodes []*nodeRun, lose context.CancelCauseFunc, watching *sync.WaitGroup) {
	for _, n := range nodes {
		watching.Go(func() {
			select {
			case <-n.held.lost:
				lose(&lostError{node: n.node, boot: n.boot, err: n.held.err})
			case <-ctx.Done():
			}
		})
	}
}
