package shared_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// TestCallsThatFollowDoNotWait: a caller that calls again as soon as it was answered
// is not taken for one that waited beside another's call.
func TestCallsThatFollowDoNotWait(t *testing.T) {
	const calls = 20
	ends := make(chan *shared.Conn, 1)
	var caller atomic.Pointer[shared.Conn]
	var served atomic.Uint32
	handler := unaries(func(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
		m.Free()
		n := served.Add(1)
		// The response is freed after it was sent: when the next call is there.
		return &call.Message{Data: []byte("x"), Release: func() {
			for n < calls && shared.Posted(caller.Load()) == n {
				runtime.Gosched()
			}
		}}, call.End{}, nil
	})
	path := serve(t, shared.Options{Handler: handler}, func(c *shared.Conn) error { ends <- c; return nil })
	client := dial(t, path, shared.Options{})
	caller.Store(client)
	for range calls {
		m, _, err := client.Unary(t.Context(), &call.Head{Method: "/test.Echo/Echo"}, &call.Message{Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		m.Free()
	}
	if n := closed(t, client, <-ends); n != 0 {
		t.Errorf("%d calls would have readers of their own", n)
	}
}

// TestCallBesideOneThatBlocks is served, though the reader serves the first one.
func TestCallBesideOneThatBlocks(t *testing.T) {
	ends, entered, leave := make(chan *shared.Conn, 1), make(chan struct{}, 2), make(chan struct{})
	handler := unaries(func(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
		entered <- struct{}{}
		<-leave
		return m, call.End{}, nil
	})
	path := serve(t, shared.Options{Handler: handler}, func(c *shared.Conn) error { ends <- c; return nil })
	client := dial(t, path, shared.Options{})
	answered := make(chan error, 2)
	for range 2 {
		go func() {
			m, _, err := client.Unary(context.WithoutCancel(t.Context()), &call.Head{Method: "/test.Echo/Echo"}, &call.Message{Data: []byte("x")})
			m.Free()
			answered <- err
		}()
	}
	for range 2 { // the second one while the first is there
		select {
		case <-entered:
		case <-time.After(2 * time.Minute):
			t.Fatal("a handler that blocks keeps another call from being served")
		}
	}
	close(leave)
	for range 2 {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	closed(t, client, <-ends)
}

// closed closes both ends, and is how many calls more would be spread.
func closed(t *testing.T, client, server *shared.Conn) int {
	t.Helper()
	for _, c := range []*shared.Conn{client, server} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	return shared.Spread(server)
}
