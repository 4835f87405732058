package router

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

type streamHandler func(call.ServerStream) error

func (f streamHandler) Serve(s call.ServerStream) error { return f(s) }

// reach serves h on shared memory and connects to it.
func reach(t *testing.T, h call.Handler) *shared.Conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := shared.Listen(path, shared.Options{Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, func(*shared.Conn) error { return nil }) }()
	conn, err := shared.Dial(t.Context(), path, shared.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// A stream that changes over to another router is judged by what lasts, is counted
// once, and what it is answered is rewritten there too.
func TestStreamMovesToAnotherRouter(t *testing.T) {
	var callees transit.Callees
	server := reach(t, streamHandler(func(s call.ServerStream) error {
		return callees.Serve(s, func(s call.ServerStream) error {
			for {
				m, err := s.Recv()
				if errors.Is(err, io.EOF) {
					s.SetTrailer(metadata.MD{"secret": {"2"}, "public": {"2"}})
					return nil
				}
				if err != nil {
					return err
				}
				// Once: the first message is the signal.
				_ = s.SendHeader(metadata.MD{"secret": {"1"}, "public": {"1"}})
				if err := s.Send(&call.Message{Data: m.Data}); err != nil {
					return err
				}
			}
		})
	}))
	const text = `
policies:
- {name: all, concurrency: {limit: 1}}
- {name: once, rate: {rate: 1/h, burst: 1}}
- {name: hide, rewrite: {header: {remove: [secret]}, trailer: {remove: [secret]}}}
`
	var old *Router
	make := func(elsewhere func(context.Context, string) string) *Router {
		r := New(Options{Elsewhere: elsewhere})
		t.Cleanup(func() { _ = r.Close() })
		set, err := policy.Parse("p.yaml", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetPolicies(set)
		if err := r.SetService("s.S", Service{Endpoints: []Endpoint{{Endpoint: balance.Endpoint{ID: "e"}, Transport: server}}}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	old = make(nil)
	next := make(func(_ context.Context, stream string) string { return old.Endpoint(stream) })
	ways := []*shared.Conn{reach(t, old), reach(t, next)}
	var fleets [2]transit.StreamSet
	s, err := transit.Open(t.Context(), &call.Head{Method: "/s.S/M", Streaming: true}, func(ctx context.Context, h *call.Head) (call.ClientStream, *transit.StreamSet, error) {
		n := 0
		if transit.IsMove(h) {
			n = 1
		}
		up, err := ways[n].Open(ctx, h)
		return up, &fleets[n], err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var moving sync.WaitGroup
	moving.Go(func() { fleets[0].Move(ctx) })
	for next.Endpoint(s.Name()) == "" || old.Endpoint(s.Name()) != "" {
		time.Sleep(time.Millisecond)
	}
	if held := old.policies.InFlightCalls(); len(held) != 0 {
		t.Errorf("the old router still counts %v", held)
	}
	if held := next.policies.InFlightCalls(); len(held) != 1 || held[0].Calls != 1 {
		t.Errorf("the new router counts %v", held)
	}
	if err := s.Send(&call.Message{Data: []byte("ahoy")}); err != nil {
		t.Fatal(err)
	}
	header, err := s.Header()
	if diff := cmp.Diff(header, metadata.MD{"public": {"1"}}); err != nil || diff != "" {
		t.Errorf("header: %v %s", err, diff)
	}
	if m, err := s.Recv(); err != nil || string(m.Data) != "ahoy" {
		t.Errorf("%v, %v", m, err)
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if diff := cmp.Diff(s.Trailer(), metadata.MD{"public": {"2"}}); diff != "" {
		t.Errorf("trailer: %s", diff)
	}
	cancel()
	moving.Wait()
	total := func(r *Router) (n uint64) {
		for _, row := range r.Calls() {
			n += row.Calls
		}
		return n
	}
	for total(next) == 0 { // the call's end is counted after its caller knows
		time.Sleep(time.Millisecond)
	}
	if a, b := total(old), total(next); a != 0 || b != 1 {
		t.Errorf("counted %d and %d times", a, b)
	}
}

// Who continues a stream that nobody has is refused, and not counted.
func TestMoveOfUnknownStream(t *testing.T) {
	r := New(Options{})
	defer r.Close()
	conn := reach(t, r)
	for name, words := range map[string]metadata.MD{
		"unknown": {transit.StreamKey: {"none 1"}, transit.MoveKey: {"on"}},
		"no name": {transit.MoveKey: {"on"}},
	} {
		s, err := conn.Open(t.Context(), &call.Head{Method: "/s.S/M", Streaming: true, Metadata: words})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, row := range r.Calls() {
		if row.Calls != 0 {
			t.Errorf("counted: %+v", row)
		}
	}
}
