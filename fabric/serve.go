package fabric

import (
	"context"
	"errors"
	"sync"
)

// Run serves the listeners until ctx ends, the server is stopped or a listener fails.
//
// A server that offers its services to a node withdraws them first: the node and the other nodes of
// the pool send calls elsewhere, while calls in flight are served for up to [WithDrainTimeout].
// Handlers of calls from this process may still be running when Run returns: Stop waits for them.
func (s *Server) Run(ctx context.Context, listeners ...Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	failures := make([]error, len(listeners))
	var all sync.WaitGroup
	for i, l := range listeners {
		all.Go(func() {
			if failures[i] = l.serve(ctx, s); failures[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// GracefulStop withdraws the services from the node, serves the calls that the pool has sent
// meanwhile, refuses new calls with Unavailable, waits for the calls in flight, and stops.
func (s *Server) GracefulStop() {
	s.mu.Lock()
	s.startDrain()
	s.mu.Unlock()
	s.offers.Wait()
	s.stopping.Store(true)
	s.awaitIdle()
	s.stop()
}

// Stop ends the contexts of all handlers and waits until the handlers have returned.
func (s *Server) Stop() {
	s.stopping.Store(true)
	s.stop()
	s.awaitIdle()
}

// beginOffer counts a listener that GracefulStop drains; false: the server is draining already.
func (s *Server) beginOffer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Err() != nil {
		return false
	}
	s.offers.Add(1)
	return true
}

// awaitIdle waits for the end of the last call. Several goroutines may wait: each wakes the next.
func (s *Server) awaitIdle() {
	for s.calls.Load() > 0 {
		<-s.idle
	}
	select {
	case s.idle <- struct{}{}:
	default:
	}
}
