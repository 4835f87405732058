package state_test

import (
	"context"
	"net"
	"testing"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// lent is a socket on which a node lends its state.
func lent(t testing.TB, n *testNode) (dial func() (net.Conn, error)) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/state.sock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- n.ServeLend(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func() (net.Conn, error) { return net.Dial("unix", l.Addr().String()) }
}

// attached opens a node's state as a helper process of it does, over a socket.
func attached(ctx context.Context, t testing.TB, n *testNode) *state.State {
	t.Helper()
	s, err := state.Attach(ctx, state.AttachOptions{Dial: lent(t, n)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
