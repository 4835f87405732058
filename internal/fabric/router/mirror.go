package router

import (
	"context"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
)

// Mirrored calls are bounded in number (Options.Mirrors), in bytes and in time.
const (
	maxMirroredBytes = 64 << 20
	mirrorTimeout    = 30 * time.Second
)

// mirror sends copies of the request to the plan's services, without waiting for them.
func (c *exchange) mirror() {
	c.retainMemory()
	for _, m := range c.Plan.Mirror {
		if c.router.mirror(m.Service, c.Head, c.request) {
			c.router.stats.mirrors.Add(1)
		} else {
			c.router.stats.dropped.Add(1)
		}
	}
}

// mirror sends a copy of the request to a service. It returns false if the mirrored calls are at
// their bounds.
func (r *Router) mirror(service string, h *call.Head, request *call.Message) bool {
	select {
	case r.mirrors <- struct{}{}:
	default:
		return false
	}
	size := int64(len(request.Data))
	done := func() {
		r.mirrored.Add(-size)
		<-r.mirrors
	}
	if r.mirrored.Add(size) > maxMirroredBytes {
		done()
		return false
	}
	m, err := cloneMessage(request)
	if err != nil || !r.spawn(func() {
		defer done()
		r.sendMirrored(service, h, m)
	}) {
		done()
		return false
	}
	return true
}

// sendMirrored calls the method of the same name of service.
func (r *Router) sendMirrored(service string, h *call.Head, request *call.Message) {
	// The head may be read by its own call, and the copy is for another method.
	h = h.Clone()
	h.Method = "/" + service + "/" + h.Name()
	now := time.Now()
	deadline := now.Add(mirrorTimeout)
	if !h.Deadline.IsZero() && h.Deadline.Before(deadline) {
		deadline = h.Deadline
	}
	ctx, cancel := context.WithDeadline(r.ctx, deadline)
	defer cancel()
	p, err := r.pick(service, h, nil, now)
	if err != nil {
		return
	}
	a := p.forward(ctx, h, request)
	a.request.Free()
	a.response.Free()
}
