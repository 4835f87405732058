package models

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/openai"
	"github.com/outboard-run/outboard/internal/model/text/texttest"
)

// serve returns a connection to a node's service for chats.
func serve(t *testing.T, b *texttest.Backend) *grpc.ClientConn {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	openai.New(openai.Options{Models: b}).RegisterGRPC(server)
	go func() { _ = server.Serve(listener) }() // Stop ends it
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const hello = `{"messages":[{"role":"user","content":"hi"}]}`

func TestComplete(t *testing.T) {
	m := &model{models: New(serve(t, &texttest.Backend{Answer: "Good day"})), name: "small"}
	s, err := m.Complete(t.Context(), []byte(hello))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	chunks := 0
	for ; err == nil; chunks++ {
		_, err = s.Next()
	}
	if !errors.Is(err, io.EOF) || chunks != 6 { // the role, three pieces, the reason, and the end
		t.Errorf("%d chunks, then %v", chunks, err)
	}
}

// Errors have their kinds, on which the codes of functions depend.
func TestCompleteErrors(t *testing.T) {
	conn := serve(t, &texttest.Backend{Answer: "x"})
	stopped := errors.New("stopped")
	for name, c := range map[string]struct {
		model, request string
		want           outboard.Kind
	}{
		"no such model": {"other", hello, outboard.NotFound},
		"no messages":   {"small", `{}`, outboard.Invalid},
	} {
		s, err := (&model{models: New(conn), name: c.model}).Complete(t.Context(), []byte(c.request))
		if err == nil {
			_, err = s.Next()
			s.Close()
		}
		if outboard.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&model{models: New(conn), name: "small"}).Complete(t.Context(), []byte(`{`)); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("no JSON: %v", err)
	}
	if _, err := (&model{models: New(nil), name: "small"}).Complete(t.Context(), []byte(hello)); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("no node: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := (&model{models: New(conn), name: "small"}).Complete(ctx, []byte(hello))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cancel(stopped)
	for err == nil {
		_, err = s.Next()
	}
	if !errors.Is(err, stopped) && !errors.Is(err, io.EOF) { // all may have come before
		t.Errorf("a call that ended: %v", err)
	}
}
