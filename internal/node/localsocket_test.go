package node

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/health"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A tenant's process opens connections without end: other peers are served.
func TestTenantConnectionsAreBounded(t *testing.T) {
	dir, err := os.MkdirTemp("", "node") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var tenant atomic.Value
	tenant.Store("tea")
	s := &localSockets{
		folder: &folder{path: dir}, owns: func(int) bool { return false }, tenantConns: 8,
		tenantOf: func(int) string { return tenant.Load().(string) },
		log:      slog.New(slog.DiscardHandler), health: &health.Board{},
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.serve(ctx, "s", unixsock.Listen, func() { close(ready) }, func(ctx context.Context, conn *net.UnixConn) {
			_, _ = conn.Write([]byte{1})
			_, _ = conn.Read(make([]byte, 1)) // until the peer has gone
		})
	}()
	<-ready
	served := func() (net.Conn, bool) {
		conn, err := unixsock.Dial(t.Context(), filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		n, _ := conn.Read(make([]byte, 1))
		return conn, n == 1
	}
	for _, name := range []string{"tea", "coffee", ""} {
		tenant.Store(name)
		var open []net.Conn
		for n := range 2 * s.tenantConns {
			conn, ok := served()
			open = append(open, conn)
			if want := name == "" || n < s.tenantConns; ok != want {
				t.Errorf("connection %d of %q is served: %v", n, name, ok)
			}
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSignalsRefuseNoPeer: a peer is admitted when a signal interrupts the check that it is alive,
// such as one of Go's scheduler.
func TestSignalsRefuseNoPeer(t *testing.T) {
	dir, err := os.MkdirTemp("", "node") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := unixsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	guarded := guardedListener{l, func(int) bool { return false }, slog.New(slog.DiscardHandler)}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Kill(os.Getpid(), unix.SIGURG) // the process exists, and ignores it
			}
		}
	}()
	for range 2_000 {
		peer, err := unixsock.Dial(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		if err := guarded.admit(conn); err != nil {
			t.Errorf("this process is refused: %v", err)
		}
		_, _ = peer.Close(), conn.Close()
		if t.Failed() {
			break
		}
	}
	close(stop)
	<-stopped
}
