package state

import (
	"context"
	"time"
)

// WhileAnswered returns a context that ends when the state has been unhealthy for limit, with the
// state's error as its cause: a request of a person that changes the state ends with that error
// instead of waiting for the end of an outage. Requests of the state return the cause. A limit of 0
// means no limit.
func (s *State) WhileAnswered(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if limit > 0 {
		go awaitOutage(ctx, s, limit, cancel)
	}
	return ctx, func() { cancel(nil) }
}

// awaitOutage calls cancel with the state's error once the state has been unhealthy for limit.
func awaitOutage(ctx context.Context, s *State, limit time.Duration, cancel context.CancelCauseFunc) {
	check := time.NewTicker(time.Second)
	defer check.Stop()
	healthy := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
		}
		err := s.Health()
		if err == nil {
			healthy = time.Now()
		}
		if time.Since(healthy) >= limit {
			cancel(err)
			return
		}
	}
}
