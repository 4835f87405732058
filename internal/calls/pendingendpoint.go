package calls

import (
	"context"

	"github.com/outboard-run/outboard/fabric/call"
)

// A pendingEndpoint is the transport of an endpoint whose program is being registered. Its calls wait
// until it is, since an operator who sees the endpoint in the pool's table may stop another server.
type pendingEndpoint struct {
	programs *programs
	id       string
	done     <-chan struct{} // closed when the program is registered, or will not be
}

var _ interface {
	call.Transport
	call.Unary
} = pendingEndpoint{}

// await returns the program's connection.
func (e pendingEndpoint) await(ctx context.Context) (call.Transport, error) {
	select {
	case <-e.done:
	case <-ctx.Done():
		return nil, abandonedError{unreachableError{"endpoint " + e.id + ": " + context.Cause(ctx).Error()}, ctx.Err()}
	}
	if t := e.programs.transport(e.id); t != nil {
		return t, nil
	}
	return nil, unreachableError{"endpoint " + e.id + " is gone"}
}

// Open implements call.Transport.
func (e pendingEndpoint) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	t, err := e.await(ctx)
	if err != nil {
		return nil, err
	}
	return t.Open(ctx, h)
}

// Unary implements call.Unary.
func (e pendingEndpoint) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	t, err := e.await(ctx)
	if err != nil {
		return nil, call.End{}, err
	}
	if u, ok := t.(call.Unary); ok {
		return u.Unary(ctx, h, request)
	}
	return unaryOverStream(ctx, t, h, request)
}

// Close implements call.Transport. It does nothing: the connection is the program's.
func (pendingEndpoint) Close() error { return nil }
