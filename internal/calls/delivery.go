package calls

import (
	"context"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/oneshot"
)

// delivery hands the calls that other nodes forward to the endpoints that they
// name. The caller's node has applied the policies.
type delivery Plane

// target takes the endpoint's name out of a head and looks it up.
func (d *delivery) target(h *call.Head) (*call.Head, call.Transport, error) {
	names := h.Metadata.Get(endpointKey)
	if len(names) != 1 {
		return nil, nil, status.Errorf(codes.InvalidArgument, "the call names no endpoint")
	}
	p := (*Plane)(d)
	p.mu.Lock()
	t := p.mine(names[0])
	p.mu.Unlock()
	if t == nil {
		return nil, nil, status.Errorf(codes.Unavailable, "endpoint %s is gone", names[0])
	}
	h = h.Clone()
	h.Metadata = h.Metadata.Copy()
	delete(h.Metadata, endpointKey)
	return h, t, nil
}

// mine is the way to an endpoint of this node. The mutex is held.
func (p *Plane) mine(id string) call.Transport {
	for _, e := range p.registry.Endpoints() {
		if e.ID == id && e.Node == p.opts.Self {
			return p.transport(e)
		}
	}
	if g := p.local[id]; g != nil {
		return g.conn // offered, and the table has not said so yet
	}
	return nil
}

// ServeUnary implements call.UnaryHandler.
func (d *delivery) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	h, t, err := d.target(h)
	if err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	if u, ok := t.(call.Unary); ok {
		return u.Unary(ctx, h, request)
	}
	return unary(ctx, t, h, request)
}

// unary makes a call of one message each way over a stream.
func unary(ctx context.Context, t call.Transport, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := t.Open(ctx, h)
	if err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	return oneshot.Exchange(s, request)
}

// Serve implements call.Handler.
func (d *delivery) Serve(from call.ServerStream) error {
	h, t, err := d.target(from.Head())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	to, err := t.Open(ctx, h)
	if err != nil {
		return err
	}
	// Not waited for here: it may wait for the caller when the callee has ended the
	// call, and what it waits for ends with our return.
	(*Plane)(d).running.Go(func() {
		if err := requests(from, to); err != nil {
			cancel() // the caller is gone
		}
	})
	return responses(from, to)
}

// requests forwards the caller's messages. An error says that the caller has ended
// the call; what the callee says comes with the responses.
func requests(from call.ServerStream, to call.ClientStream) error {
	for {
		m, err := from.Recv()
		if err == io.EOF { //nolint:errorlint // a wrapped one is no clean end
			_ = to.CloseSend()
			return nil
		}
		if err != nil {
			return err
		}
		if to.Send(m) != nil {
			return nil //nolint:nilerr // it has ended: the responses tell how
		}
	}
}

// responses forwards the callee's words and returns the call's status.
func responses(from call.ServerStream, to call.ClientStream) error {
	if header, err := to.Header(); err == nil && header != nil {
		if err := from.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		m, err := to.Recv()
		if err != nil {
			from.SetTrailer(to.Trailer())
			if err == io.EOF { //nolint:errorlint // a wrapped one is no clean end
				return nil
			}
			return err
		}
		if err := from.Send(m); err != nil {
			return err
		}
	}
}
