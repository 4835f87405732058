package calls

import (
	"context"
	"fmt"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// registryOffers publishes endpoints in the registry; for a Plane that is the only process of its
// node.
type registryOffers struct {
	registry *services.Registry
	self     outboard.NodeID

	mu     sync.Mutex
	serial int
}

// Offer implements Offers.
func (d *registryOffers) Offer(ctx context.Context, e services.Endpoint, _ string) (services.Endpoint, error) {
	if e.ID == "" {
		d.mu.Lock()
		d.serial++
		e.ID = fmt.Sprintf("%s/%d", d.self, d.serial)
		d.mu.Unlock()
	}
	e.Node = d.self
	ctx, cancel := context.WithTimeout(ctx, offerLimit)
	defer cancel()
	return e, d.registry.Offer(ctx, e)
}

// Settled implements Offers.
func (*registryOffers) Settled(string) {}

// Withdraw implements Offers.
func (d *registryOffers) Withdraw(ctx context.Context, id string) error {
	return d.registry.Withdraw(ctx, id)
}
