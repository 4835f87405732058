package router

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// Calls that wait for ready (grpc/doc/wait-for-ready.md) do not fail while their service has no
// endpoint, or none to which a connection can be made: they wait for a change, until their
// deadline. The answer of an endpoint, and the loss of an endpoint that may have seen the call, end
// them like other calls.

// The pauses of a call that waits for ready between attempts at endpoints that can't be reached.
const (
	minReadyPause = 10 * time.Millisecond
	maxReadyPause = time.Second
)

// changes returns a channel that is closed at the next change of services or endpoints.
func (r *Router) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// announceChange wakes the calls that wait for a change. The caller holds Router.mu.
func (r *Router) announceChange() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// pickReady picks an endpoint like pick, and waits until there is one if the call waits for ready.
func (r *Router) pickReady(ctx context.Context, h *call.Head, exclude []string, now time.Time) (picked, error) {
	p, err := r.pick(h.Service(), h, exclude, now)
	if err == nil || !h.WaitForReady {
		return p, err
	}
	r.options.Yield(ctx)
	for {
		changed := r.changes()
		if p, err = r.pick(h.Service(), h, exclude, time.Now()); err == nil {
			return p, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s := status.FromContextError(ctx.Err())
			return p, status.Errorf(s.Code(), "%s while waiting for an endpoint: %s", s.Message(), status.Convert(err).Message())
		case <-r.ctx.Done():
			return p, status.Error(codes.Unavailable, errClosed.Error())
		}
	}
}

// A readyBackoff spaces the attempts of a call that waits for ready.
type readyBackoff struct{ pause time.Duration }

// next waits for a change or a pause before another attempt. It returns false if the call does not
// wait for ready, or has ended.
func (b *readyBackoff) next(ctx context.Context, c *exchange) bool {
	if !c.Head.WaitForReady || ctx.Err() != nil {
		return false
	}
	changed := c.router.changes()
	c.router.options.Yield(ctx)
	b.pause = min(max(2*b.pause, minReadyPause), maxReadyPause)
	timer := time.NewTimer(b.pause)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return false
	case <-c.router.ctx.Done():
		return false
	}
	c.tried = c.tried[:0]
	return true
}
