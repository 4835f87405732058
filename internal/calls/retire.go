package calls

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// retireInterval is how often a process that is being replaced checks whether it is done. It polls
// since its condition depends on many values that change often while calls flow.
const retireInterval = 20 * time.Millisecond

// InFlight counts the calls in flight.
func (p *Plane) InFlight() InFlight { return p.inFlight.count() }

// Retire has all callers send their next calls through the process that takes over. The caller has
// called Pause before. It returns when the last call is over and no other can come, or when ctx
// ends.
func (p *Plane) Retire(ctx context.Context) error {
	p.programs.drain()
	p.inbound.drainNodes()
	var plainDone atomic.Bool
	p.life.Go(func() {
		p.plain.GracefulStop()
		plainDone.Store(true)
	})
	// After that only siblings have a connection to send calls here.
	err := p.waitUntil(ctx, func() bool {
		return plainDone.Load() && p.listeners.settled() && p.programs.allMoved() && p.inbound.noNodes()
	})
	if err != nil {
		return err
	}
	p.inbound.drainAll()
	return p.awaitLinks(ctx)
}

// awaitLinks waits until no sibling is connected or connecting, and no call is in flight.
func (p *Plane) awaitLinks(ctx context.Context) error {
	return p.waitUntil(ctx, func() bool { return p.inbound.empty() && p.inFlight.none() })
}

func (p *Plane) waitUntil(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(retireInterval)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.life.ctx.Done():
			return status.Error(codes.Unavailable, "the process ends")
		case <-tick.C:
		}
	}
	return nil
}

// Moved records that another process now reaches the program of an endpoint.
func (p *Plane) Moved(id string) { p.programs.markMoved(id) }
