package calls_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"

	"github.com/outboard-run/outboard/internal/pool/services"
)

// secondAnswers answers no call of a method before there are two.
type secondAnswers struct {
	testgrpc.UnimplementedTestServiceServer
	arrived chan struct{}
}

func (s *secondAnswers) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	select {
	case s.arrived <- struct{}{}:
	case <-s.arrived:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &testgrpc.SimpleResponse{}, nil
}

// A gRPC server that was added to a node has descriptors, by its reflection: policies about unary calls
// apply to the calls of plain gRPC, which does not say whether a call is unary.
func TestAddedServersAreDescribed(t *testing.T) {
	l := listen(t)
	server := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(server, &secondAnswers{arrived: make(chan struct{})})
	reflection.Register(server)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)

	harbour := newPool(t).member("harbour")
	e := services.Endpoint{Address: l.Addr().String(), Services: []string{testService}}
	if _, err := harbour.registry.Add(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	harbour.eventually(t, "it is described", func() bool { return len(harbour.registry.Methods(testService)) > 0 })
	const text = "policies:\n- name: twice\n  hedge: {after: 1ms, attempts: 2}\n"
	if _, err := harbour.registry.Apply(t.Context(), "test.yaml", text); err != nil {
		t.Fatal(err)
	}
	harbour.eventually(t, "the policy is in force", func() bool { return len(harbour.Policies()) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := testgrpc.NewTestServiceClient(harbour.dialPlain(t)).UnaryCall(ctx, &testgrpc.SimpleRequest{}); err != nil {
		t.Errorf("a call that has to be hedged: %v", err)
	}
}
