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
	pid      int
}

var _ interface {
	call.Transport
	call.Unary
} = pendingEndpoint{}

// mayBe reports whether a program that is offering its services may be the endpoint's. Its ID is not
// known yet, and a process may have several connections.
func (e pendingEndpoint) mayBe(p *program) bool { return p.id == "" && p.conn.Peer().PID == e.pid }

// await returns the program's connection.
func (e pendingEndpoint) await(ctx context.Context) (call.Transport, error) {
	if t := e.programs.await(ctx, e.id, e.mayBe); t != nil {
		return t, nil
	}
	if ctx.Err() != nil {
		return nil, abandonedError{unreachableError{"endpoint " + e.id + ": " + context.Cause(ctx).Error()}, ctx.Err()}
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
