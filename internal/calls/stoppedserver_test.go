package calls_test

import (
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/internal/calls/callstest"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// addServer adds a gRPC server to a node, which serves impl if it is not nil.
func addServer(t *testing.T, m *member, impl testgrpc.TestServiceServer) {
	t.Helper()
	l := listen(t)
	if impl == nil {
		_ = l.Close()
	} else {
		s := grpc.NewServer()
		testgrpc.RegisterTestServiceServer(s, impl)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		t.Cleanup(func() {
			s.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := m.registry.Add(t.Context(), services.Endpoint{Address: l.Addr().String(), Services: []string{testService}}); err != nil {
		t.Fatal(err)
	}
}

// Calls and streams to a gRPC server that was added to a node and does not run go to another one, with
// all their messages.
func TestStoppedServerOfTwo(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	addServer(t, harbour, nil)
	addServer(t, harbour, &tide{})
	for name, m := range map[string]*member{"same node": harbour, "another node": dinghy} {
		m.endpoints(t, 2)
		c := testgrpc.NewTestServiceClient(m.dial(t))
		waitServed(t, c)
		for kind, call := range map[string]func(n uint64) error{
			"unary":         func(n uint64) error { return callstest.Call(t.Context(), c, n, 0) },
			"large unary":   func(n uint64) error { return callstest.Call(t.Context(), c, n, 300_000) },
			"burst":         func(n uint64) error { return callstest.Burst(t.Context(), c, n, 3, 1000) },
			"client stream": func(uint64) error { return gather(t.Context(), c, 1, 40_000, 300_000, 1) },
		} {
			for n := range uint64(12) {
				if err := call(n); err != nil {
					t.Errorf("%s, %s %d: %v", name, kind, n, err)
				}
			}
		}
	}
}
