package shared_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// A retired listener is settled once the connections that it has accepted have shaken hands or
// ended.
func TestSettledListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := shared.Listen(path, shared.Options{Handler: echo{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	accepted, served := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		served <- l.Serve(ctx, func(*shared.Conn) error { accepted <- struct{}{}; return nil })
	}()
	slow, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dial(t, path, shared.Options{}) // it is accepted after the slow one
	<-accepted
	if err := l.Retire(); err != nil {
		t.Fatal(err)
	}
	if l.Settled() {
		t.Error("settled with a handshake in progress")
	}
	_ = slow.Close()
	for !l.Settled() {
		select {
		case err := <-served:
			t.Fatalf("Serve has returned %v", err)
		default:
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
