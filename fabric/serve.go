package fabric

import (
	"context"
	"errors"
	"sync"
)

// Run serves those who come to the listeners, until ctx ends, the server is
// stopped or one of them fails. Handlers that are called from this process may
// still be on their way out then: Stop waits for them.
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

// GracefulStop refuses new calls with Unavailable, waits for those that run, and
// then stops.
func (s *Server) GracefulStop() {
	s.stopping.Store(true)
	s.awaitIdle()
	s.stop()
}

// Stop ends the contexts of all handlers and waits until these have returned.
func (s *Server) Stop() {
	s.stopping.Store(true)
	s.stop()
	s.awaitIdle()
}

// awaitIdle waits for the last call. More than one may wait: each passes it on.
func (s *Server) awaitIdle() {
	for s.calls.Load() > 0 {
		<-s.idle
	}
	select {
	case s.idle <- struct{}{}:
	default:
	}
}
