package node

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// A client that announces a body and never sends it does not keep its connection to the
// forwarder, though no process reads the body.
func TestForwarderBoundsBodies(t *testing.T) {
	apps, err := catalog.Open(t.Context(), catalog.Options{State: statetest.Open(t), Self: "harbour"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = apps.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := newForwarder(&ingress{
		listener: l.(*net.TCPListener), //nolint:forcetypeassert // it is TCP
		apps:     apps, log: slog.New(slog.DiscardHandler), clientTimeout: 50 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	client, conn := net.Pipe()
	defer client.Close()
	go f.serve(conn)
	if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, client); err != nil { // until the forwarder closes it
		t.Error(err)
	}
	if len(f.open) > 0 {
		t.Errorf("%d connections are counted", len(f.open))
	}
}

// Connections beyond the bound are closed, and one that ends makes room.
func TestClientListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := &clientListener{Listener: l, timeout: time.Minute, open: make(chan struct{}, 1)}
	defer bounded.Close()
	accepted := make(chan net.Conn, 4)
	go func() {
		defer close(accepted)
		for {
			conn, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	first := <-accepted
	if n, err := dial().Read(make([]byte, 1)); err == nil {
		t.Errorf("a connection beyond the bound reads %d bytes", n)
	}
	_ = first.Close()
	dial()
	_ = (<-accepted).Close()
}
