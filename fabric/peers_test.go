package fabric

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A pairing is a kind of client with a kind of server.
type pairing struct {
	// dial serves what register registers and is a connection to it; both end
	// with the test.
	dial dialTest
}

type dialTest = func(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface

// sides are the options of a pairing's two sides.
type sides struct {
	fabric []Option
	server []grpc.ServerOption // of grpc-go
	client []grpc.DialOption   // of grpc-go
}

// pairings are all ways that calls can go.
func pairings() map[string]pairing {
	return map[string]pairing{
		"in process":         {dialLocal},
		"in process, framed": {dialOpaque},
		"through a handler":  {dialThrough},
		"through streams":    {dialThroughStreams},
		"shared memory":      {dialSharedMemory},
		"borrowed requests":  {dialBorrowed},
		"TCP with TLS":       {dialTLS},
		"gRPC with TLS":      {dialPlainTLS},
		"grpc-go":            {dialGRPC},
		"us to grpc-go":      {dialToGRPC},
		"grpc-go to us":      {dialFromGRPC},
	}
}

func dialLocal(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	network := new(Network)
	l, err := network.listen("test")
	if err != nil {
		t.Fatal(err)
	}
	serveFabric(t, l, register, o)
	c, err := Dial("inproc:test", append([]Option{WithNetwork(network)}, o.fabric...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// serveFabric serves l with our server until the test ends.
func serveFabric(t testing.TB, l Listener, register func(grpc.ServiceRegistrar), o sides) *Server {
	t.Helper()
	s := NewServer(o.fabric...)
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background(), l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// dialGRPC is grpc-go with itself, to compare with.
func dialGRPC(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	return dialGo(t, serveGRPC(t, register, o), o)
}

func dialSharedMemory(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	target := "unix:" + filepath.Join(t.TempDir(), "socket")
	l, err := Listen(target, o.fabric...)
	if err != nil {
		t.Fatal(err)
	}
	serveFabric(t, l, register, o)
	return dialFabric(t, target, o)
}

// dialTLS is our client with our server over TCP.
func dialTLS(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	return dialSecure(t, "tcp:", register, o)
}

// dialPlainTLS is the same over HTTP/2.
func dialPlainTLS(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	return dialSecure(t, "grpc:", register, o)
}

func dialSecure(t testing.TB, scheme string, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	server, client := testTLS(t)
	l, err := Listen(scheme+"127.0.0.1:0", append([]Option{WithTLS(server)}, o.fabric...)...)
	if err != nil {
		t.Fatal(err)
	}
	serveFabric(t, l, register, o)
	o.fabric = append([]Option{WithTLS(client)}, o.fabric...)
	return dialFabric(t, scheme+l.Addr().String(), o)
}

// dialToGRPC is our client with grpc-go's server.
func dialToGRPC(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	return dialFabric(t, "grpc:"+serveGRPC(t, register, o), o)
}

// dialFromGRPC is grpc-go's client with our server.
func dialFromGRPC(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	l, err := Listen("grpc:127.0.0.1:0", o.fabric...)
	if err != nil {
		t.Fatal(err)
	}
	serveFabric(t, l, register, o)
	return dialGo(t, l.Addr().String(), o)
}

func dialFabric(t testing.TB, target string, o sides) grpc.ClientConnInterface {
	t.Helper()
	c, err := Dial(target, o.fabric...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// serveGRPC serves with grpc-go.
func serveGRPC(t testing.TB, register func(grpc.ServiceRegistrar), o sides) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append([]grpc.ServerOption{grpc.WaitForHandlers(true)}, o.server...)...)
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// dialPlain is a connection of grpc-go's.
func dialGo(t testing.TB, addr string, o sides) grpc.ClientConnInterface {
	t.Helper()
	c, err := grpc.NewClient(addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, o.client...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
