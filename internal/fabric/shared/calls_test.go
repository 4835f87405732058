package shared_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// streams is a Handler without a shorter way.
type streams func(s call.ServerStream) error

func (f streams) Serve(s call.ServerStream) error { return f(s) }

// unaries is one that has only the shorter way.
type unaries func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error)

func (f unaries) Serve(call.ServerStream) error {
	return status.Error(codes.Unimplemented, "only unary")
}

func (f unaries) ServeUnary(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
	return f(ctx, h, m)
}

func detailed() error {
	s, err := status.New(codes.Aborted, "with details").WithDetails(durationpb.New(time.Second))
	if err != nil {
		return err
	}
	return s.Err()
}

func TestHeadAndEndTravel(t *testing.T) {
	head := &call.Head{
		Method: "/a.B/C", Metadata: metadata.MD{"k": {"v", "w"}, "x-bin": {"\x00\xff"}},
		Tenant: "claimed", Peer: "claimed", Encoding: "gzip", Subtype: "json", Priority: call.High, Attempt: 3, WaitForReady: true,
	}
	end := call.End{Header: metadata.MD{"h": {"1"}}, Trailer: metadata.MD{"t": {strings.Repeat("2", 600)}}}
	for _, trust := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("trust %v fails %v", trust, fails), func(t *testing.T) {
				want := *head
				if !trust {
					want.Tenant, want.Peer = fmt.Sprintf("uid:%d", os.Getuid()), fmt.Sprintf("pid:%d", os.Getpid())
				}
				handler := unaries(func(_ context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
					if diff := cmp.Diff(&want, h); diff != "" {
						t.Error(diff)
					}
					if !m.Compressed {
						t.Error("not compressed any more")
					}
					if fails {
						m.Free()
						return nil, end, detailed()
					}
					return m, end, nil
				})
				c := dial(t, serve(t, shared.Options{Handler: handler, Inline: true, Trust: trust}, welcome), shared.Options{})
				for range 2 { // the first tells the method's name, the second its number
					m, got, err := c.Unary(t.Context(), head, &call.Message{Data: []byte("x"), Compressed: true})
					if fails != (err != nil) || !fails && !m.Compressed {
						t.Fatalf("got %v, %v", m, err)
					}
					if diff := cmp.Diff(end, got); diff != "" {
						t.Error(diff)
					}
					if s := status.Convert(err); fails && (s.Code() != codes.Aborted || len(s.Details()) != 1) {
						t.Errorf("got %v", s)
					}
				}
			})
		}
	}
}

func TestStreamSaysHeaderAndTrailer(t *testing.T) {
	proceed := make(chan bool)
	handler := streams(func(s call.ServerStream) error {
		if err := s.SendHeader(metadata.Pairs("h", "1")); err != nil {
			return err
		}
		<-proceed
		s.SetTrailer(metadata.Pairs("t", "2"))
		return detailed()
	})
	c := dial(t, serve(t, shared.Options{Handler: handler}, welcome), shared.Options{})
	s, err := c.Open(t.Context(), &call.Head{Method: "/a.B/C", Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	header, err := s.Header()
	if diff := cmp.Diff(metadata.Pairs("h", "1"), header); diff != "" || err != nil {
		t.Error(diff, err)
	}
	close(proceed)
	if _, err := s.Recv(); status.Code(err) != codes.Aborted || len(status.Convert(err).Details()) != 1 {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(metadata.Pairs("t", "2"), s.Trailer()); diff != "" {
		t.Error(diff)
	}
	if err := s.Send(&call.Message{Data: []byte("late")}); !errors.Is(err, io.EOF) {
		t.Errorf("send after the end: %v", err)
	}
}

// TestUnaryThroughAStreamHandler calls a handler that knows only streams.
func TestUnaryThroughAStreamHandler(t *testing.T) {
	for what, handler := range map[string]streams{
		"echo": echo{}.Serve,
		"header first": func(s call.ServerStream) error {
			return errors.Join(s.SendHeader(metadata.Pairs("h", "1")), echo{}.Serve(s))
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := dial(t, serve(t, shared.Options{Handler: handler}, welcome), shared.Options{})
			m, end, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{Data: []byte("x")})
			if err != nil || string(m.Data) != "x" {
				t.Fatalf("got %v, %v", m, err)
			}
			if what == "header first" && len(end.Header["h"]) != 1 {
				t.Errorf("header %v", end.Header)
			}
		})
	}
}

// TestEndOfContextReachesTheHandler ends calls from the caller's side.
func TestEndOfContextReachesTheHandler(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *shared.Conn) error{
		"unary": func(ctx context.Context, c *shared.Conn) error {
			_, _, err := c.Unary(ctx, &call.Head{Method: "/a.B/C"}, &call.Message{Data: []byte("x")})
			return err
		},
		"stream": func(ctx context.Context, c *shared.Conn) error {
			s, err := c.Open(ctx, &call.Head{Method: "/a.B/C", Streaming: true})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"head's deadline": func(_ context.Context, c *shared.Conn) error {
			_, _, err := c.Unary(context.Background(), &call.Head{Method: "/a.B/C", Deadline: time.Now().Add(time.Second)}, &call.Message{})
			return err
		},
	}
	for what, make_ := range calls {
		t.Run(what, func(t *testing.T) {
			arrived, left := make(chan context.Context, 1), make(chan error, 1)
			c := dial(t, serve(t, shared.Options{Handler: streams(func(s call.ServerStream) error {
				arrived <- s.Context()
				<-s.Context().Done()
				left <- s.Context().Err()
				return s.Context().Err()
			})}, welcome), shared.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- make_(ctx, c) }()
			if what == "head's deadline" {
				awaitDeadline(t, arrived, left, ended)
				return
			}
			<-arrived
			cancel()
			if err := <-ended; status.Code(err) != codes.Canceled {
				t.Errorf("the caller got %v", err)
			}
			<-left
		})
	}
}

// awaitDeadline waits for the end of a call whose deadline passes, at the handler too if the call
// has arrived there before.
func awaitDeadline(t *testing.T, arrived <-chan context.Context, left, ended <-chan error) {
	t.Helper()
	err := <-ended
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the caller got %v", err)
	}
	select {
	case seen := <-arrived:
		if _, ok := seen.Deadline(); !ok {
			t.Error("the deadline did not travel")
		}
		<-left
	default:
	}
}

// TestSlowStreamBlocksNobody fills streams that nobody reads until they take no
// more, and calls beside them.
func TestSlowStreamBlocksNobody(t *testing.T) {
	handler := streams(func(s call.ServerStream) error {
		if s.Head().Name() == "Slow" {
			<-s.Context().Done()
			return s.Context().Err()
		}
		return echo{}.Serve(s)
	})
	c := dial(t, serve(t, shared.Patient(shared.Options{Handler: handler, Heap: 1 << 20, Slots: 16}), welcome), shared.Patient(shared.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var full sync.WaitGroup
	for range 8 {
		s, err := c.Open(ctx, &call.Head{Method: "/a.B/Slow", Streaming: true})
		if err != nil {
			t.Fatal(err)
		}
		full.Add(1)
		wg.Go(func() {
			for i := 0; s.Send(&call.Message{Data: make([]byte, 50000)}) == nil; i++ {
				if i == 20 { // the next one has to wait for credit
					full.Done()
				}
			}
		})
	}
	full.Wait()
	for range 100 {
		m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/Fast"}, &call.Message{Data: make([]byte, 40000)})
		if err != nil || len(m.Data) != 40000 {
			t.Fatal(err)
		}
		m.Free()
	}
}

// TestLargeTransferHoldsNobodyUp makes small calls while a large message is under
// way, and counts those that end before it does.
func TestLargeTransferHoldsNobodyUp(t *testing.T) {
	c := dial(t, serve(t, shared.Options{Handler: echo{}, Inline: true, MaxMessage: 256 << 20}, welcome), shared.Options{MaxMessage: 256 << 20})
	var during int
	done := make(chan error, 1)
	go func() {
		m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/Large", Priority: call.Low}, &call.Message{Data: make([]byte, 16<<20)})
		if err == nil && len(m.Data) != 16<<20 {
			err = errors.New("another length")
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			if during < 20 {
				t.Errorf("%d small calls ended beside 16 MiB each way", during)
			}
			return
		default:
		}
		m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/Small"}, &call.Message{Data: make([]byte, 64)})
		if err != nil {
			t.Fatal(err)
		}
		m.Free()
		during++
	}
}

func TestTooMuchIsRefused(t *testing.T) {
	release := make(chan bool)
	handler := unaries(func(_ context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		if h.Name() == "Wait" {
			<-release
		}
		return m, call.End{}, nil
	})
	c := dial(t, serve(t, shared.Options{Handler: handler, MaxCalls: 2, MaxMessage: 2 << 20}, welcome), shared.Options{MaxCalls: 4})
	_, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{Data: make([]byte, 3<<20)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("message too large: %v", err)
	}
	_, _, err = c.Unary(t.Context(), &call.Head{Method: "/a.B/C", Metadata: metadata.Pairs("k", strings.Repeat("v", 70000))}, &call.Message{})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("head too large: %v", err)
	}
	results := make(chan error, 4)
	for range 4 {
		go func() {
			_, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/Wait"}, &call.Message{})
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("too many calls: %v", err)
		}
	}
	close(release)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestNoHandlerMeansUnimplemented(t *testing.T) {
	conns := make(chan *shared.Conn, 1)
	dial(t, serve(t, shared.Options{Handler: echo{}}, func(c *shared.Conn) error { conns <- c; return nil }), shared.Options{})
	_, _, err := (<-conns).Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
}

// TestBothWays calls the side that dialled.
func TestBothWays(t *testing.T) {
	conns := make(chan *shared.Conn, 1)
	dial(t, serve(t, shared.Options{}, func(c *shared.Conn) error { conns <- c; return nil }), shared.Options{Handler: echo{}, Inline: true})
	m, _, err := (<-conns).Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{Data: []byte("x")})
	if err != nil || string(m.Data) != "x" {
		t.Errorf("got %v, %v", m, err)
	}
}

// TestResponseCanBeLent answers from the callee's own heap.
func TestResponseCanBeLent(t *testing.T) {
	handler := unaries(func(ctx context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
		defer m.Free()
		lender, ok := shared.LenderFrom(ctx)
		if !ok {
			return nil, call.End{}, errors.New("no lender")
		}
		r, err := lender.Lend(2 * len(m.Data))
		if err == nil {
			copy(r.Data[copy(r.Data, m.Data):], m.Data)
		}
		return r, call.End{}, err
	})
	c := dial(t, serve(t, shared.Options{Handler: handler, Inline: true}, welcome), shared.Options{})
	for range 1000 { // more than the heap holds, were it not given back
		m, err := c.Lend(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		m.Data[5] = 7
		m, _, err = c.Unary(t.Context(), &call.Head{Method: "/a.B/C"}, m)
		if err != nil || len(m.Data) != 128<<10 || m.Data[5] != 7 || m.Data[5+64<<10] != 7 {
			t.Fatalf("got %v", err)
		}
		m.Free()
	}
}

// A response that no longer can be sent, since the connection ended while the handler ran, is freed.
func TestResponseOfEndedConnectionIsFreed(t *testing.T) {
	for name, size := range map[string]int{"small": 10, "large": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			called, freed := make(chan struct{}), make(chan struct{})
			accepted := make(chan *shared.Conn, 1)
			handler := unaries(func(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
				m.Free()
				close(called)
				<-(<-accepted).Done()
				return &call.Message{Data: make([]byte, size), Release: func() { close(freed) }}, call.End{}, nil
			})
			path := serve(t, shared.Options{Handler: handler, Inline: true}, func(c *shared.Conn) error { accepted <- c; return nil })
			c := dial(t, path, shared.Options{})
			go func() {
				<-called
				_ = c.Close()
			}()
			_, _, _ = c.Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{})
			select {
			case <-freed:
			case <-time.After(2 * time.Minute):
				t.Error("the response was not freed")
			}
		})
	}
}
