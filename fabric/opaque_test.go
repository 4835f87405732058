package fabric

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/outboard-run/outboard/fabric/call"
)

// opaque is a way through this process whose ends don't know that: messages are
// bytes, and every call is a stream.
type opaque struct{ inner *inProcess }

func (o *opaque) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	return o.inner.Open(ctx, h)
}

func (o *opaque) Close() error { return o.inner.Close() }

// opaqueHandler hides from the server that it is called from this process.
type opaqueHandler struct{ inner call.Handler }

func (o opaqueHandler) Serve(s call.ServerStream) error { return o.inner.Serve(opaqueStream{s}) }

type opaqueStream struct{ call.ServerStream }

// dialOpaque is our client with our server over bytes alone.
func dialOpaque(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	s := NewServer(o.fabric...)
	register(s)
	t.Cleanup(s.Stop)
	c := dialTransport(&opaque{newInProcess(s.life, opaqueHandler{serverHandler{s}})}, nil, o.fabric...)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// passing is a handler in front of a server, as a router is.
type passing struct{ serverHandler }

// dialThrough has a handler between that passes values on.
func dialThrough(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	return dialHandler(t, register, o, func(s *Server) call.Handler { return passing{serverHandler{s}} })
}

// dialThroughStreams has one that knows only streams.
func dialThroughStreams(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	return dialHandler(t, register, o, func(s *Server) call.Handler { return struct{ call.Handler }{serverHandler{s}} })
}

func dialHandler(t testing.TB, register func(grpc.ServiceRegistrar), o sides, between func(*Server) call.Handler) grpc.ClientConnInterface {
	t.Helper()
	s := NewServer(o.fabric...)
	register(s)
	t.Cleanup(s.Stop)
	c := dialTransport(newInProcess(s.life, between(s)), securePeer("test", "test"), o.fabric...)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
