package fabric

import (
	"context"

	"google.golang.org/grpc/peer"

	"github.com/outboard-run/outboard/fabric/call"
)

// fixed is the connector of a transport that exists already.
type fixed struct{ only *link }

func (f *fixed) link(context.Context, bool) (*link, error) { return f.only, nil }
func (f *fixed) Close() error                              { return f.only.transport.Close() }

// dialTransport makes calls over t, which Close closes. p is the identity of the peer; nil:
// unknown.
func dialTransport(t call.Transport, p *peer.Peer, opts ...Option) *ClientConn {
	return newClientConn("localhost", &fixed{&link{transport: t, peer: p}}, newOptions(opts))
}

// dialServer makes calls to s in this process, without a name.
func dialServer(s *Server, p *peer.Peer, opts ...Option) *ClientConn {
	return dialTransport(newInProcess(context.Background(), serverHandler{s}), p, opts...)
}
