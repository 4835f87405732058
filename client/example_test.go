package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// The zero value uses the node of this user on this machine.
func Example() {
	var node client.Client
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	gpus, err := outboard.ParseSelector("type=gpu,memory>=4GiB")
	if err != nil {
		fmt.Println(err)
		return
	}
	devices, err := node.Devices(ctx, gpus)
	if err != nil {
		fmt.Println(err) // if no node runs, the error says how to start one
		return
	}
	for _, d := range devices {
		fmt.Println(d.ID, d.Name, d.Free, "free")
	}
}

// A lease is valid until it is closed or lost.
func ExampleClient_Acquire() {
	var node client.Client
	hold, err := node.Acquire(context.Background(), client.LeaseRequest{
		Memory: 2 << 30, Timeout: client.Duration(time.Minute), Program: "example",
	}, func(w client.Waiting) { fmt.Println("place", w.Position, "in the queue") })
	if outboard.KindOf(err) == outboard.NoPool {
		fmt.Println("no node runs here")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Close()
	for _, l := range hold.Leases() {
		fmt.Println("leased", l.Device)
	}
	select {
	case <-hold.Done():
		fmt.Println("lost:", hold.Err())
	case <-time.After(time.Second): // the work
	}
}

// The error for a node that does not run says how to start one.
func ExampleClient_Status() {
	node := client.Client{Data: "/nonexistent/outboard"}
	_, err := node.Status(context.Background())
	fmt.Println(err)
	fmt.Println(outboard.KindOf(err))
	// Output:
	// no node runs with the data folder /nonexistent/outboard: start one with `outboard up --data /nonexistent/outboard`
	// no_pool
}
