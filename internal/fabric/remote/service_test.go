package remote

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// A service that holds its share of the calls between two nodes is refused more, at once, and
// another service is served.
func TestServiceLimit(t *testing.T) {
	hold := serverFunc(func(s call.ServerStream) error {
		if s.Head().Streaming {
			<-s.Context().Done()
			return s.Context().Err()
		}
		m, err := s.Recv()
		if err != nil {
			return err
		}
		return s.Send(m)
	})
	a, b := tcp(t)
	o := framed.Options{MaxStreams: 8}
	client, server := New(framed.Client(a, o), Options{}), New(framed.Server(b, o), Options{Handler: hold})
	t.Cleanup(func() {
		go client.Close()
		server.Close()
		client.Close()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 6 {
		if _, err := client.Open(ctx, &call.Head{Method: "/a.Slow/Hold", Streaming: true}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.Open(ctx, &call.Head{Method: "/a.Slow/Hold", Streaming: true})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "a.Slow") {
		t.Errorf("a seventh call of a service: %v", err)
	}
	if _, _, err := client.Unary(ctx, &call.Head{Method: "/a.Other/Call"}, &call.Message{Data: []byte("x")}); err != nil {
		t.Errorf("a call of another service: %v", err)
	}
	_, _, err = client.Unary(ctx, &call.Head{Method: "/a.Slow/Call"}, &call.Message{Data: []byte("x")})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a unary call of the service: %v", err)
	}
}

// What was received and not read is bounded for the whole connection.
func TestUnreadIsBounded(t *testing.T) {
	release := make(chan struct{})
	hold := serverFunc(func(s call.ServerStream) error {
		<-release
		for {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
	})
	client, server := pair(t, false, Options{}, Options{Handler: hold, MaxBuffered: 400 << 10})
	var all []call.ClientStream
	for range 4 {
		s, err := client.Open(t.Context(), &call.Head{Method: "/a.B/Hold", Streaming: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_ = s.Send(&call.Message{Data: make([]byte, 60<<10)}) // a stream that was refused says so below
		}
		all = append(all, s)
	}
	exhausted := 0
	for _, s := range all[2:] {
		if _, err := s.Recv(); status.Code(err) == codes.ResourceExhausted {
			exhausted++
		}
	}
	if exhausted != 2 {
		t.Errorf("%d of the last two streams ended with RESOURCE_EXHAUSTED", exhausted)
	}
	close(release)
	for _, s := range all[:2] {
		_ = s.CloseSend()
		if _, err := s.Recv(); status.Code(err) == codes.ResourceExhausted {
			t.Errorf("got %v of a stream within the limit", err)
		}
	}
	_ = client.Close()
	_ = server.Close()
	if used := server.buffered.used.Load(); used != 0 {
		t.Errorf("%d bytes are still counted", used)
	}
}
