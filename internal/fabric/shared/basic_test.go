package shared_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// noise is where patterns come from; neighbouring lengths differ.
var noise = func() []byte {
	b := make([]byte, 6<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

func pattern(n int) []byte { return bytes.Clone(noise[n%1000 : n%1000+n]) }

var sizes = []int{0, 1, 64, 192, 448, 449, 4096, 5000, 256 << 10, 1 << 20, 1<<20 + 1, 3 << 20}

func TestUnaryEcho(t *testing.T) {
	for _, inline := range []bool{true, false} {
		t.Run(fmt.Sprint("inline ", inline), func(t *testing.T) {
			c := dial(t, serve(t, shared.Patient(shared.Options{Handler: echo{}, Inline: inline}), welcome), shared.Patient(shared.Options{}))
			for range 2 {
				for _, n := range sizes {
					want := pattern(n)
					m, _, err := c.Unary(t.Context(), &call.Head{Method: "/test.Echo/Unary"}, &call.Message{Data: want})
					if err != nil {
						t.Fatalf("%d bytes: %v", n, err)
					}
					if !bytes.Equal(m.Data, want) {
						t.Errorf("%d bytes: came back as %d others", n, len(m.Data))
					}
					m.Free()
				}
			}
			_, _, err := c.Unary(t.Context(), &call.Head{Method: "/test.Echo/Fail"}, &call.Message{Data: []byte("x")})
			if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "as asked" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestManyCallers(t *testing.T) {
	for _, inline := range []bool{true, false} {
		t.Run(fmt.Sprint("inline ", inline), func(t *testing.T) {
			c := dial(t, serve(t, shared.Patient(shared.Options{Handler: echo{}, Inline: inline, Slots: 8, Heap: 1 << 20}), welcome), shared.Patient(shared.Options{}))
			var wg sync.WaitGroup
			for g := range 16 {
				wg.Go(func() {
					for i := range 40 {
						want := pattern(sizes[(g+i)%9] + g)
						m, _, err := c.Unary(context.Background(), &call.Head{Method: "/test.Echo/Unary"}, &call.Message{Data: want})
						if err != nil {
							t.Error(err)
							return
						}
						if !bytes.Equal(m.Data, want) {
							t.Error("bytes differ")
						}
						m.Free()
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestStreamEcho(t *testing.T) {
	c := dial(t, serve(t, shared.Patient(shared.Options{Handler: echo{}}), welcome), shared.Patient(shared.Options{}))
	s, err := c.Open(t.Context(), &call.Head{Method: "/test.Echo/Stream", Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2 {
			for _, n := range sizes {
				if err := s.Send(&call.Message{Data: pattern(n)}); err != nil {
					t.Error(err)
				}
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		for _, n := range sizes {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Data, pattern(n)) {
				t.Errorf("%d bytes: came back as %d others", n, len(m.Data))
			}
			m.Free()
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	wg.Wait()
}
