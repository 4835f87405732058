package node

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	if n := f.open.slots.Used(); n > 0 {
		t.Errorf("%d connections are counted", n)
	}
}

// The idle connections of one address leave slots to another one. A connection beyond the bounds gets
// an error, and one that ends frees its slot.
func TestClientListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := &clientListener{Listener: l, clients: newClientConns(2, time.Minute)}
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
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	refused := func(from string) string {
		t.Helper()
		conn := dial(from)
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(response), "HTTP/1.1 429 ") {
			t.Errorf("a connection beyond the bounds gets %q, %v", response, err)
		}
		return string(response)
	}
	dial("127.0.0.1")
	first := <-accepted
	if r := refused("127.0.0.1"); !strings.Contains(r, "1 of this address are open, and the other 1 are for clients at other addresses") {
		t.Error(r)
	}
	dial("127.0.0.2")
	second := <-accepted
	if r := refused("127.0.0.3"); !strings.Contains(r, "2 are open, the most at once") {
		t.Error(r)
	}
	_ = first.Close()
	dial("127.0.0.1")
	_ = (<-accepted).Close()
	_ = second.Close()
}

// The connections of clients leave descriptors to the node's own API.
func TestForwarderLeavesDescriptors(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1000, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	f := newForwarder(&ingress{listener: l.(*net.TCPListener), log: slog.New(slog.DiscardHandler)}) //nolint:forcetypeassert // it is TCP
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if n := f.open.slots.Size(); n != 300 || f.tenantRequests != 150 {
		t.Errorf("%d connections, and %d requests of a tenant, with 1,000 descriptors", n, f.tenantRequests)
	}
}
