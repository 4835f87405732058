package calls_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// A program holds thousands of streams through its node, also to another node, and makes unary
// calls beside them.
func TestHeldStreams(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	harbour.serve(t, interop.NewTestServer())
	harbour.endpoints(t, 1)
	dinghy.endpoints(t, 1)
	const streams = 3_000
	for name, m := range map[string]*member{"same node": harbour, "another node": dinghy} {
		t.Run(name, func(t *testing.T) {
			c := testgrpc.NewTestServiceClient(m.dial(t))
			waitServed(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			one := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}
			for n := range streams {
				s, err := c.FullDuplexCall(ctx)
				if err != nil {
					t.Fatalf("stream %d: %v", n, err)
				}
				if err := s.Send(one); err != nil {
					t.Fatalf("stream %d: %v", n, err)
				}
				if _, err := s.Recv(); err != nil {
					t.Fatalf("stream %d: %v", n, err)
				}
			}
			for range 10 {
				if _, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
