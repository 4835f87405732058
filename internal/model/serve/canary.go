package serve

import (
	"context"
	"errors"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// outcomes count the requests of one version of a canary's pair on this node.
type outcomes struct{ requests, failed uint64 }

// The canary is taken back when this many of its requests failed, which are at least a tenth of them,
// and twice the share that fails with the version before.
const canaryFailures = 5

func (o *outcomes) isWorseThan(before *outcomes) bool {
	return o.failed >= canaryFailures && 10*o.failed >= o.requests && o.failed*before.requests >= 2*before.failed*o.requests
}

// isFault reports whether an error is the fault of a version. What is wrong with a request, a full
// queue, a deadline and a client that is gone are not.
func isFault(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	kind := outboard.KindOf(err)
	return kind == outboard.Other || kind == outboard.Unreachable || kind == outboard.Protocol
}

// countOutcome counts a request that an instance has executed. It takes a canary back that fails
// more often than the version before.
func countOutcome(s *Server, v *repository.Version, i *instance, fault bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.routes[v.Name]
	if r == nil || r.canary == 0 || v.Canary == 0 {
		return
	}
	if r.judged != v.Number {
		r.judged, r.ofCanary, r.before, r.reverting = v.Number, outcomes{}, outcomes{}, false
	}
	o := &r.before
	if i == r.current {
		o = &r.ofCanary
	}
	o.requests++
	if fault {
		o.failed++
	}
	if s.closed || r.reverting || !r.ofCanary.isWorseThan(&r.before) {
		return
	}
	r.reverting = true
	failed, requests := r.ofCanary.failed, r.ofCanary.requests
	s.serving.Go(func() { revertCanary(s, v.Name, v.Number, failed, requests) })
}

// revertLimit is how long the pool's state may take to take a canary back.
const revertLimit = time.Minute

func revertCanary(s *Server, name string, number int, failed, requests uint64) {
	ctx, cancel := context.WithTimeout(s.life, revertLimit)
	defer cancel()
	back, err := s.opts.Repository.RevertCanary(ctx, name, number)
	if err != nil {
		s.log.Error("a canary was not taken back", "model", name, "version", number, "error", err)
		return
	}
	s.metrics.reverted.WithLabelValues(name).Inc()
	s.log.Error("a canary was taken back", "model", name, "version", number, "failed", failed, "requests", requests, "now", back.Number, "as", back.Of)
}
