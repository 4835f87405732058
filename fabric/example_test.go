package fabric_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

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
