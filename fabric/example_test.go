package fabric_test

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/fabric"
)

// What is generated or written for grpc-go stays: stubs, services, handlers.
func serve(r grpc.ServiceRegistrar) { grpc_health_v1.RegisterHealthServer(r, health.NewServer()) }

func ask(c grpc.ClientConnInterface) {
	answer, err := grpc_health_v1.NewHealthClient(c).Check(context.Background(), new(grpc_health_v1.HealthCheckRequest))
	fmt.Println(answer.GetStatus(), err)
}

// A program moves over by the two lines that make a server and a connection.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var network fabric.Network
	listener, err := fabric.Listen("inproc:health", fabric.WithNetwork(&network))
	if err != nil {
		fmt.Println(err)
		return
	}

	server := fabric.NewServer() // it was made by grpc.NewServer
	serve(server)
	stopped := make(chan error)
	go func() { stopped <- server.Run(ctx, listener) }()

	conn, err := fabric.Dial("inproc:health", fabric.WithNetwork(&network)) // and by grpc.NewClient
	if err != nil {
		fmt.Println(err)
		return
	}
	ask(conn)

	fmt.Println(conn.Close())
	stop()
	fmt.Println(<-stopped)
	// Output:
	// SERVING <nil>
	// <nil>
	// <nil>
}

// A handler, and a caller, that read large bytes where they are, and don't keep them.
func ExampleWithBorrowedRequests() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	listener, err := fabric.Listen("unix:" + dir + "/socket")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := fabric.NewServer(fabric.WithBorrowedRequests())
	testgrpc.RegisterTestServiceServer(server, mirror{})
	stopped := make(chan error)
	go func() { stopped <- server.Run(ctx, listener) }()

	conn, err := fabric.Dial("unix:" + dir + "/socket")
	if err != nil {
		fmt.Println(err)
		return
	}
	var loan fabric.Loan
	image := &testgrpc.Payload{Body: bytes.Repeat([]byte("pixel"), 50_000)}
	out, err := testgrpc.NewTestServiceClient(conn).UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: image}, fabric.WithBorrowedResponse(&loan))
	fmt.Println(bytes.Count(out.GetPayload().GetBody(), []byte("pixel")), err)
	loan.Release() // out's bytes are gone

	fmt.Println(conn.Close())
	stop()
	fmt.Println(<-stopped)
	// Output:
	// 50000 <nil>
	// <nil>
	// <nil>
}

type mirror struct {
	testgrpc.UnimplementedTestServiceServer
}

// UnaryCall answers with the request's bytes, which are valid until that is sent.
func (mirror) UnaryCall(_ context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: in.GetPayload()}, nil
}
