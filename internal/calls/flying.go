package calls

import (
	"context"
	"sync/atomic"

	"github.com/outboard-run/outboard/fabric/call"
)

// flying counts the calls that this process carries.
type flying struct{ calls, streams atomic.Int64 }

func (f *flying) of(h *call.Head) *atomic.Int64 {
	if h.Streaming {
		return &f.streams
	}
	return &f.calls
}

func (f *flying) none() bool { return f.calls.Load() == 0 && f.streams.Load() == 0 }

// counted is a handler whose calls are counted.
type counted struct {
	plane   *Plane
	handler call.Handler
	unary   call.UnaryHandler
}

// Serve implements call.Handler.
func (c counted) Serve(s call.ServerStream) error {
	n := c.plane.flying.of(s.Head())
	n.Add(1)
	defer n.Add(-1)
	return c.handler.Serve(s)
}

// ServeUnary implements call.UnaryHandler.
func (c counted) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	n := c.plane.flying.of(h)
	n.Add(1)
	defer n.Add(-1)
	return c.unary.ServeUnary(ctx, h, request)
}
