package router

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// A stream that moves from another router keeps its endpoint. Its policies were applied when it
// began: only the policies that hold for its whole duration are applied again.

// streams maps the names of movable streams to their endpoints.
type streams struct {
	mu  sync.Mutex
	all map[string]activeStream
}

// activeStream is the endpoint of a stream, with the number of its legs in this router.
type activeStream struct {
	endpoint string
	legs     int
}

// add records a stream until the returned function is called.
func (s *streams) add(name, endpoint string) func() {
	if name == "" {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]activeStream{}
	}
	s.all[name] = activeStream{endpoint, s.all[name].legs + 1}
	return func() { s.remove(name) }
}

func (s *streams) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.all[name]
	if c.legs--; c.legs > 0 {
		s.all[name] = c
		return
	}
	delete(s.all, name)
}

func (s *streams) of(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[name].endpoint
}

// Endpoint returns the endpoint of a stream that the router carries, or "" for other streams.
func (r *Router) Endpoint(stream string) string { return r.streams.of(stream) }

// recognize reads the name of a movable stream from its head.
func (c *streamCall) recognize(h *call.Head) {
	c.streamName, c.Moved = transit.Name(h), transit.IsMove(h)
	if began, ok := transit.Began(c.streamName); c.Moved && ok && began.Before(c.began) {
		c.began = began
	}
}

// pick picks the endpoint: the current endpoint of a stream that moved here, or the balancer's
// choice.
func (c *streamCall) pick(ctx context.Context) (picked, error) {
	if !c.Moved {
		return c.router.pickReady(ctx, c.Head, c.tried, time.Now())
	}
	id := c.router.Endpoint(c.streamName)
	if id == "" {
		id = c.router.options.Elsewhere(ctx, c.streamName)
	}
	e := c.router.endpoint(c.Head.Service(), id)
	if e == nil || !e.acquire() {
		return picked{}, status.Error(codes.Unavailable, "router: no endpoint is known for the stream")
	}
	return picked{endpoint: e}, nil
}

// endpoint returns the endpoint of that ID, nil if there is none.
func (r *Router) endpoint(service, id string) *endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := (*r.services.Load())[service]; s != nil {
		return s.endpoints[id]
	}
	return nil
}

// responseHeader applies the policies to the callee's header, unless the stream has moved here:
// then the header is about the move.
func (c *streamCall) responseHeader(md metadata.MD) (metadata.MD, error) {
	if c.Moved {
		return md, nil
	}
	md, _, err := c.respond(md, nil)
	return md, err
}

// withLateHeader applies the policies to a header that arrives as the first message.
func (c *streamCall) withLateHeader(push func(*call.Message) error) func(*call.Message) error {
	first := true
	return func(m *call.Message) error {
		if !first || !c.Plan.Rewrites {
			return push(m)
		}
		first = false
		md, err := transit.ParseHeader(m)
		if err != nil {
			return status.Errorf(codes.Internal, "router: %v", err)
		}
		if md, _, err = c.respond(md, nil); err != nil {
			return err
		}
		return push(transit.AppendHeader(md))
	}
}

func isMovedAway(end call.End, err error) bool { return err == nil && transit.MovedOn(end.Trailer) }

// done ends an attempt. A stream that moves away says nothing about its endpoint, and a stream that
// moved in was not picked by the balancer.
func (c *streamCall) done(p picked, end call.End, err error) {
	switch {
	case c.Moved:
		p.release()
	case isMovedAway(end, err):
		p.pick.Cancel()
		p.release()
	default:
		p.done(end, err, time.Now())
	}
}

// handOver ends the local accounting of a stream that continues elsewhere.
func (c *exchange) handOver(now time.Time) {
	c.chain.End(&c.Exchange, policy.Outcome{Moved: true, Now: now})
	c.method.inFlight.Add(-1)
}
