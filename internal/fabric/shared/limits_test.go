package shared_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// held is a handler whose streams stay open until their callers end them.
var held = streams(func(s call.ServerStream) error {
	_, err := s.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
})

// A service that holds as many calls as it may is refused more, while another is served; its
// calls are possible again when one has ended.
func TestServiceLimit(t *testing.T) {
	c := dial(t, serve(t, shared.Options{Handler: held}, welcome), shared.Options{MaxCalls: 8})
	var all []context.CancelFunc
	open := func(method string) error {
		ctx, cancel := context.WithCancel(t.Context())
		all = append(all, cancel)
		_, err := c.Open(ctx, &call.Head{Method: method, Streaming: true})
		return err
	}
	for range 6 {
		if err := open("/a.Slow/Hold"); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("/a.Slow/Hold"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "a.Slow") {
		t.Errorf("a seventh call of a service: %v", err)
	}
	for range 2 {
		if err := open("/a.Other/Hold"); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("/a.Other/Hold"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a ninth call: %v", err)
	}
	all[0]()
	for open("/a.Slow/Hold") != nil {
		if t.Context().Err() != nil {
			t.Fatal("no call is possible after one has ended")
		}
	}
	for _, cancel := range all {
		cancel()
	}
}

// Ten thousand streams are held on one connection, and a unary call passes them.
func TestHeldStreams(t *testing.T) {
	handler := struct {
		streams
		unaries
	}{held, func(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
		return m, call.End{}, nil
	}}
	c := dial(t, serve(t, shared.Options{Handler: both{handler.streams, handler.unaries}}, welcome), shared.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := range 10_000 {
		if _, err := c.Open(ctx, &call.Head{Method: "/a.B/Hold", Streaming: true}); err != nil {
			t.Fatalf("stream %d: %v", n, err)
		}
	}
	m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{Data: []byte("x")})
	if err != nil || string(m.Data) != "x" {
		t.Errorf("got %v, %v", m, err)
	}
}

// both serves streams and unary calls.
type both struct {
	streams streams
	unary   unaries
}

func (b both) Serve(s call.ServerStream) error { return b.streams(s) }

func (b both) ServeUnary(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
	return b.unary(ctx, h, m)
}

// Streams whose messages are not read end when they hold more than the connection may buffer;
// the connection goes on.
func TestUnreadMessagesAreBounded(t *testing.T) {
	release := make(chan struct{})
	handler := both{func(s call.ServerStream) error {
		<-release
		for {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			m.Free()
		}
	}, func(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
		return m, call.End{}, nil
	}}
	c := dial(t, serve(t, shared.Options{Handler: handler, MaxBuffered: 2 << 20}, welcome), shared.Options{})
	var all []call.ClientStream
	for range 4 {
		s, err := c.Open(t.Context(), &call.Head{Method: "/a.B/Hold", Streaming: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 15 {
			if err := s.Send(&call.Message{Data: make([]byte, 60<<10)}); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, s)
	}
	if _, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{Data: []byte("x")}); err != nil {
		t.Error(err)
	}
	close(release)
	exhausted := 0
	for _, s := range all {
		_ = s.CloseSend()
		_, err := s.Recv()
		switch {
		case status.Code(err) == codes.ResourceExhausted:
			exhausted++
		case !errors.Is(err, io.EOF) && status.Code(err) != codes.Unknown:
			t.Errorf("got %v", err)
		}
	}
	if exhausted != 2 {
		t.Errorf("%d streams ended with RESOURCE_EXHAUSTED, want 2 of 4", exhausted)
	}
}

// A status that is too long for the wire keeps its code.
func TestLongStatusKeepsItsCode(t *testing.T) {
	long := strings.Repeat("é", 100<<10)
	handler := both{func(s call.ServerStream) error {
		s.SetTrailer(metadata.MD{"k": {long}})
		return status.Error(codes.NotFound, "no such thing")
	}, func(context.Context, *call.Head, *call.Message) (*call.Message, call.End, error) {
		return nil, call.End{}, status.Error(codes.NotFound, long)
	}}
	c := dial(t, serve(t, shared.Options{Handler: handler}, welcome), shared.Options{})
	_, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{})
	if s := status.Convert(err); s.Code() != codes.NotFound || !strings.HasPrefix(s.Message(), "éé") {
		t.Errorf("got %.200v, want NotFound and the beginning of its message", err)
	}
	s, err := c.Open(t.Context(), &call.Head{Method: "/a.B/C", Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("got %.200v, want NotFound with a trailer that is too long", err)
	}
}
