package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/unixsock"
)

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
