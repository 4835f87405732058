package calls

import (
	"context"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/oneshot"
)

// delivery hands the calls forwarded by other nodes and sibling processes to the endpoints that
// they name. The caller's node has applied the policies.
type delivery struct {
	transports *transports
	life       *lifetime
}

// target removes the endpoint's name from a head, and returns the endpoint's transport.
func (d *delivery) target(ctx context.Context, h *call.Head) (*call.Head, call.Transport, error) {
	ids := h.Metadata.Get(endpointKey)
	if len(ids) != 1 {
		return nil, nil, status.Errorf(codes.InvalidArgument, "the call names no endpoint")
	}
	if err := mayUse(h.Service(), h.Tenant); err != nil {
		return nil, nil, err
	}
	t := d.transports.local(ids[0])
	if t == nil {
		t = d.transports.programs.await(ctx, ids[0], anyProgram)
	}
	if t == nil {
		return nil, nil, unreachableError{"endpoint " + ids[0] + " is gone"}
	}
	h = h.Clone()
	h.Metadata = h.Metadata.Copy()
	delete(h.Metadata, endpointKey)
	return h, t, nil
}

// ServeUnary implements call.UnaryHandler.
func (d *delivery) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	h, t, err := d.target(ctx, h)
	if err != nil {
		request.Free()
		return nil, call.End{Trailer: trailerOf(nil, err)}, err
	}
	if u, ok := t.(call.Unary); ok {
		response, end, err := u.Unary(ctx, h, request)
		if unsent(err) {
			request.Free()
		}
		end.Trailer = trailerOf(end.Trailer, err)
		return response, end, err
	}
	return unaryOverStream(ctx, t, h, request)
}

// trailerOf returns a trailer that tells the caller's node whether a program saw the call. A
// program can't set that key.
func trailerOf(md metadata.MD, err error) metadata.MD {
	switch {
	case unsent(err):
		return metadata.MD{offer.UnsentKey: {"1"}}
	case md[offer.UnsentKey] != nil:
		md = md.Copy()
		delete(md, offer.UnsentKey)
	}
	return md
}

// unaryOverStream makes a call of one message each way over a stream.
func unaryOverStream(ctx context.Context, t call.Transport, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
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
	h, t, err := d.target(from.Context(), from.Head())
	if err != nil {
		return refuse(from, err)
	}
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	to, err := t.Open(ctx, h)
	if err != nil {
		return refuse(from, err)
	}
	// Serve does not wait for this goroutine: when the callee has ended the call it may wait for a
	// message of the caller, which ends when Serve returns.
	d.life.Go(func() {
		if err := forwardRequests(from, to); err != nil {
			cancel() // the caller is gone
		}
	})
	return forwardResponses(from, to)
}

// refuse returns the error of a stream that could not be opened, and tells the caller's node whether
// a program saw it.
func refuse(from call.ServerStream, err error) error {
	from.SetTrailer(trailerOf(nil, err))
	return err
}

// forwardRequests forwards the caller's messages. An error says that the caller has ended
// the call; the callee's status comes with the responses.
func forwardRequests(from call.ServerStream, to call.ClientStream) error {
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
			return nil //nolint:nilerr // it has ended: the responses have the status
		}
	}
}

// forwardResponses forwards the callee's messages and returns the call's status.
func forwardResponses(from call.ServerStream, to call.ClientStream) error {
	if header, err := to.Header(); err == nil && header != nil {
		if err := from.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		m, err := to.Recv()
		if err != nil {
			from.SetTrailer(trailerOf(to.Trailer(), err))
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
