package calls

import (
	"context"
	"sync/atomic"

	"github.com/outboard-run/outboard/fabric/call"
)

// InFlight is the number of calls that a process carries.
type InFlight struct {
	Calls   int `json:"calls"`
	Streams int `json:"streams"`
}

// inFlight counts the calls that this process carries.
type inFlight struct{ calls, streams atomic.Int64 }

func (f *inFlight) counter(h *call.Head) *atomic.Int64 {
	if h.Streaming {
		return &f.streams
	}
	return &f.calls
}

func (f *inFlight) count() InFlight {
	return InFlight{Calls: int(f.calls.Load()), Streams: int(f.streams.Load())}
}

func (f *inFlight) none() bool { return f.count() == InFlight{} }

// A handler serves calls of both kinds.
type handler interface {
	call.Handler
	call.UnaryHandler
}

// counting returns a handler that counts the calls of h.
func (f *inFlight) counting(h handler) handler { return &countedHandler{f, h} }

type countedHandler struct {
	inFlight *inFlight
	handler  handler
}

// Serve implements call.Handler.
func (c *countedHandler) Serve(s call.ServerStream) error {
	n := c.inFlight.counter(s.Head())
	n.Add(1)
	defer n.Add(-1)
	return c.handler.Serve(s)
}

// ServeUnary implements call.UnaryHandler.
func (c *countedHandler) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	n := c.inFlight.counter(h)
	n.Add(1)
	defer n.Add(-1)
	return c.handler.ServeUnary(ctx, h, request)
}
