package shared_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// pairOf is a connection's two ends; the server's echoes.
func pairOf(t *testing.T) (client, server *shared.Conn) {
	t.Helper()
	ends := make(chan *shared.Conn, 1)
	path := serve(t, shared.Options{Handler: echo{}}, func(c *shared.Conn) error {
		ends <- c
		return nil
	})
	client = dial(t, path, shared.Options{})
	return client, <-ends
}

// A peer that wants no more calls says so; what has begun goes on to its end, and
// what comes too late is known never to have been sent.
func TestDrain(t *testing.T) {
	client, server := pairOf(t)
	s, err := client.Open(t.Context(), &call.Head{Method: "/test/Echo", Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	server.Drain()
	server.Drain()
	<-client.Draining()
	exchange(t, s, "after the word")
	finished := make(chan error, 1)
	go func() { finished <- client.Finish(context.Background()) }()
	for {
		_, _, err := client.Unary(t.Context(), &call.Head{Method: "/test/Echo"}, &call.Message{Data: []byte("late")})
		if errors.Is(err, shared.ErrFinished) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, s, "after the door closed")
	select {
	case <-finished:
		t.Fatal("finished with a call in flight")
	default:
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("end: %v", err)
	}
	if err := <-finished; err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	_, err = client.Open(t.Context(), &call.Head{Method: "/test/Echo"})
	if !errors.Is(err, shared.ErrFinished) || status.Code(err) != codes.Unavailable {
		t.Errorf("a call after the end: %v", err)
	}
	<-server.Done()
}

func exchange(t *testing.T, s call.ClientStream, text string) {
	t.Helper()
	if err := s.Send(&call.Message{Data: []byte(text)}); err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	if string(m.Data) != text {
		t.Errorf("got %q, want %q", m.Data, text)
	}
}

// A stream whose end has come is in flight until its caller has read all of it.
func TestFinishWaitsForReaders(t *testing.T) {
	client, _ := pairOf(t)
	s, err := client.Open(t.Context(), &call.Head{Method: "/test/Echo", Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Send(&call.Message{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Finish(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("finish: %v", err)
	}
	for range 3 {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		m.Free()
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("end: %v", err)
	}
	if err := client.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}
