package plain

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// serveBounded serves calls, which pass to a backend, and returns a client.
func serveBounded(t *testing.T, h func(call.Transport) call.Handler, o Options) (*Server, testgrpc.TestServiceClient) {
	t.Helper()
	addr, _ := backend(t)
	s := NewServer(h(dial(t, addr, Options{})), o)
	l := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(serving.Wait)
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, testgrpc.NewTestServiceClient(conn)
}

// The messages of all calls together are bounded, with the size that they have when they are
// decompressed, and count no longer once they are freed.
func TestMessagesAreBounded(t *testing.T) {
	const held = 1 << 20
	for name, handler := range map[string]func(call.Transport) call.Handler{
		"streams": func(to call.Transport) call.Handler { return proxy{to} },
		"unary":   func(to call.Transport) call.Handler { return unaryProxy{proxy{to}} },
	} {
		t.Run(name, func(t *testing.T) {
			s, c := serveBounded(t, handler, Options{MaxMessage: 8 << 20, MaxHeld: held})
			send := func(n int, o ...grpc.CallOption) error {
				_, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: make([]byte, n)}}, o...)
				return err
			}
			for range 10 {
				if err := send(held / 2); err != nil {
					t.Fatal(err)
				}
				s.awaitHeld(t, 0)
				if err := send(held/4, grpc.UseCompressor(gzip.Name)); err != nil {
					t.Fatal("compressed:", err)
				}
				s.awaitHeld(t, 0)
			}
			if err := send(2 * held); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a message beyond the limit: %v", err)
			}
			if err := send(2*held, grpc.UseCompressor(gzip.Name)); err == nil {
				t.Error("a compressed message beyond the limit is served")
			}
			s.awaitHeld(t, 0) // of the refused calls
			if err := s.memory.Reserve(held); err != nil {
				t.Fatal(err)
			}
			if err := send(2 * freeMessage); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a message while nothing is left: %v", err)
			}
			if err := send(freeMessage / 2); err != nil {
				t.Errorf("a small message while nothing is left: %v", err)
			}
			s.memory.Release(held)
			s.awaitHeld(t, 0)
		})
	}
}

// awaitHeld waits until calls hold that many bytes.
func (s *Server) awaitHeld(t *testing.T, want int64) {
	t.Helper()
	for until := time.Now().Add(time.Minute); s.memory.held.Load() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d bytes are held", s.memory.held.Load())
		}
	}
}

// A message that is freed after its call has ended, or never, does not count any longer.
func TestMemoryOfEndedCalls(t *testing.T) {
	m := &memory{limit: 100}
	late, never := callMemory{of: m}, callMemory{of: m}
	for _, c := range []*callMemory{&late, &never} {
		if err := c.reserve(40); err != nil {
			t.Fatal(err)
		}
		c.end()
	}
	late.release(40)
	if held := m.held.Load(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}
