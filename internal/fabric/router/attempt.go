package router

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/oneshot"
)

// picked is an endpoint with a call counted on it.
type picked struct {
	*endpoint
	pick balance.Pick
}

// pick picks an endpoint of a service for a call and acquires it. An endpoint that was removed
// between the pick and the acquisition is skipped.
func (r *Router) pick(service string, h *call.Head, exclude []string, now time.Time) (picked, error) {
	for {
		s := (*r.services.Load())[service]
		if s == nil {
			return picked{}, status.Errorf(codes.Unimplemented, "router: no service %s", service)
		}
		p, err := s.picker.Pick(h, exclude, now)
		if err != nil {
			return picked{}, status.Errorf(codes.Unavailable, "router: service %s has no endpoints", s.name)
		}
		e := p.Endpoint().Value.(*endpoint) //nolint:errcheck // replace put it there
		if e.acquire() {
			return picked{e, p}, nil
		}
		p.Cancel()
	}
}

// done ends the attempt and reports its outcome to the balancer.
func (p picked) done(end call.End, err error, now time.Time) {
	p.pick.Done(balance.Outcome{Err: err, Load: p.reportOf(end.Trailer, now)}, now)
	if err == nil {
		p.good.Add(1)
	} else {
		p.bad.Add(1)
	}
	p.release()
}

// An answer is the result of one attempt at a unary call.
type answer struct {
	response *call.Message
	end      call.End
	err      error
	endpoint *endpoint
	ended    time.Time
	// unsent reports that the callee never saw the call.
	unsent bool
	number int // number of the attempt of a hedged call, from 0
	// request is the request of an unsent call, if the transport returned it; the receiver of the
	// answer sends it again or frees it.
	request *call.Message
}

// attempt sends a unary call once. It takes over the request.
func (r *Router) attempt(ctx context.Context, h *call.Head, request *call.Message, exclude []string, now time.Time) answer {
	p, err := r.pickReady(ctx, h, exclude, now)
	if err != nil {
		request.Free()
		return answer{err: err, ended: now}
	}
	return p.forward(ctx, h, request)
}

// forward makes a unary call to the endpoint.
func (p picked) forward(ctx context.Context, h *call.Head, request *call.Message) answer {
	a := answer{endpoint: p.endpoint}
	if p.unary != nil {
		a.response, a.end, a.err = p.unary.Unary(ctx, h, request)
		if a.unsent = a.err != nil && isUnsent(a.err); a.unsent {
			a.request = request
		}
	} else {
		a.stream(ctx, p.transport, h, request)
	}
	a.err = toStatus(a.err)
	a.ended = time.Now()
	p.done(a.end, outcomeOf(ctx, a.err), a.ended)
	return a
}

// outcomeOf returns the outcome of an attempt for the balancer. A cancelled attempt says nothing
// about its endpoint, unless a later attempt has overtaken it: otherwise an endpoint that never
// answers would never be ejected while calls to it are hedged.
func outcomeOf(ctx context.Context, err error) error {
	if status.Code(err) == codes.Canceled && errors.Is(context.Cause(ctx), errOvertaken) {
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	return err
}

// isUnsent reports whether an error has a method Unsent that returns true: the callee never saw the
// call.
func isUnsent(err error) bool {
	var u interface{ Unsent() bool }
	return errors.As(err, &u) && u.Unsent()
}

// stream makes a unary call over a transport that provides streams only.
func (a *answer) stream(ctx context.Context, t call.Transport, h *call.Head, request *call.Message) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := t.Open(ctx, h)
	if err != nil {
		a.err, a.unsent, a.request = openError(err), true, request
		return
	}
	a.response, a.end, a.err = oneshot.Exchange(s, request)
	a.unsent = a.err != nil && isUnsent(a.err)
}

// openError converts the error of opening a call to a status.
func openError(err error) error {
	if s := toStatus(err); status.Code(s) != codes.Unknown {
		return s
	}
	return status.Errorf(codes.Unavailable, "router: open: %v", err)
}
