package shared_test

import (
	"context"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// serve listens until the test ends, and returns the socket's path.
func serve(t testing.TB, o shared.Options, accept func(*shared.Conn) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := shared.Listen(path, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(ctx, accept) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

func welcome(*shared.Conn) error { return nil }

func dial(t testing.TB, path string, o shared.Options) *shared.Conn {
	t.Helper()
	c, err := shared.Dial(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echo answers each message with itself.
type echo struct{}

func (echo) Serve(s call.ServerStream) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return ended(err)
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

func (echo) ServeUnary(_ context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
	if h.Method == "/test.Echo/Fail" {
		m.Free()
		return nil, call.End{}, status.Error(codes.FailedPrecondition, "as asked")
	}
	return m, call.End{}, nil
}
