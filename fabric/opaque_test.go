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
	c := NewClientConn(&opaque{newInProcess(s.life, opaqueHandler{s})}, o.fabric...)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
