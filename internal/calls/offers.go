package calls

import (
	"context"
	"fmt"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// direct is Offers of a process that has the node's calls for itself.
type direct struct {
	registry *services.Registry
	self     outboard.NodeID

	mu     sync.Mutex
	serial int
}

// Offer implements Offers.
func (d *direct) Offer(ctx context.Context, e services.Endpoint, _ string) (services.Endpoint, error) {
	if e.ID == "" {
		d.mu.Lock()
		d.serial++
		e.ID = fmt.Sprintf("%s/%d", d.self, d.serial)
		d.mu.Unlock()
	}
	e.Node = d.self
	return e, d.registry.Offer(ctx, e)
}

// Settled implements Offers.
func (*direct) Settled(string) {}

// Withdraw implements Offers.
func (d *direct) Withdraw(ctx context.Context, id string) error { return d.registry.Withdraw(ctx, id) }
