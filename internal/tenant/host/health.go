package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/api"
)

// maxHealthChecks bounds the processes that are checked at once.
const maxHealthChecks = 8

// Health checks all processes. It returns nil if each of them runs, answers before ctx is done, and
// can write the pool's state. A process that is starting for the first time is in good health.
func (h *Host) Health(ctx context.Context) error {
	h.mu.Lock()
	all := maps.Clone(h.tenants)
	h.mu.Unlock()
	var asked sync.WaitGroup
	var mu sync.Mutex
	found := map[string]error{}
	slots := make(chan struct{}, maxHealthChecks)
	for name, k := range all {
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			if err := k.health(ctx); err != nil {
				mu.Lock()
				found[name] = err
				mu.Unlock()
			}
		})
	}
	asked.Wait()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(found)) {
		errs = append(errs, found[name])
	}
	return errors.Join(errs...)
}

// health checks the process.
func (s *supervisor) health(ctx context.Context) error {
	s.mu.Lock()
	ready, err := s.ready, s.err
	s.mu.Unlock()
	name := s.config.Tenant
	switch {
	case err != nil && ctx.Err() == nil:
		return outboard.Errorf(outboard.KindOf(err), "the process of tenant "+name, "%w", err)
	case !ready:
		return nil
	}
	err = s.host.Get(ctx, name, "/v1/health", &api.Nothing{})
	if errors.Is(err, context.DeadlineExceeded) {
		return outboard.Errorf(outboard.Unreachable, "the process of tenant "+name, "it does not answer")
	}
	return err
}
