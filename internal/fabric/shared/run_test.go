package shared_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// runPeers are the ends of a connection. The server's handler reports where requests lie, and returns
// a response of the same bytes: in lent memory, or the request itself, which is copied then.
func runPeers(t *testing.T, lend bool) (client *shared.Conn, inPlace *atomic.Int64) {
	t.Helper()
	inPlace = new(atomic.Int64)
	ends := make(chan *shared.Conn, 1)
	handler := unaries(func(ctx context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
		c := <-ends
		ends <- c
		if shared.IsInPlace(c, m.Data) {
			inPlace.Add(1)
		}
		if !lend {
			return m, call.End{}, nil
		}
		defer m.Free()
		lender, ok := shared.LenderFrom(ctx)
		if !ok {
			return nil, call.End{}, errors.New("the context lends no memory")
		}
		response, err := lender.Lend(len(m.Data) + 100) // and less is used
		if err != nil {
			return nil, call.End{}, err
		}
		response.Data = response.Data[:copy(response.Data, m.Data)]
		return response, call.End{}, nil
	})
	path := serve(t, shared.Options{Handler: handler}, func(c *shared.Conn) error {
		ends <- c
		return nil
	})
	return dial(t, path, shared.Options{}), inPlace
}

// A message that exceeds a block is read in place too, whether its sender lent memory for it or not:
// it lies in adjacent blocks.
func TestMessagesInAdjacentBlocks(t *testing.T) {
	for name, lend := range map[string]bool{"lent": true, "copied": false} {
		t.Run(name, func(t *testing.T) {
			c, inPlace := runPeers(t, lend)
			for n, size := range []int{1<<20 + 1, 1_101_004, 2 << 20, 3<<20 + 5, 5 << 20} {
				request := &call.Message{Data: make([]byte, size)}
				if lend {
					var err error
					if request, err = c.Lend(size); err != nil {
						t.Fatal(err)
					}
				}
				want := pattern(size)
				copy(request.Data, want)
				m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/Echo"}, request)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(m.Data, want) {
					t.Errorf("%d bytes: the response differs", size)
				}
				if !shared.IsInPlace(c, m.Data) || int(inPlace.Load()) != n+1 {
					t.Errorf("%d bytes: the response is in place: %v; %d of %d requests were", size, shared.IsInPlace(c, m.Data), inPlace.Load(), n+1)
				}
				m.Free()
			}
		})
	}
}

// Messages of all sizes arrive whole when there is no space for adjacent blocks, or not for all, and
// leave nothing in the heap.
func TestMessagesWithoutAdjacentBlocks(t *testing.T) {
	c, _ := runPeers(t, true)
	var calling sync.WaitGroup
	for n := range 12 {
		calling.Go(func() {
			for i := range 10 {
				size := 1<<20 + (n*977+i*7919)*43
				request, err := c.Lend(size)
				if err != nil {
					t.Error(err)
					return
				}
				want := pattern(size)
				copy(request.Data, want)
				m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/Echo"}, request)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(m.Data, want) {
					t.Errorf("%d bytes: the response differs", size)
				}
				m.Free()
			}
		})
	}
	calling.Wait()
	// All of the heap is free again: it is lent in the largest pieces.
	var lent []*call.Message
	for range 2 {
		m, err := c.Lend(shared.MaxRun(c))
		if err != nil || !shared.IsInPlace(c, m.Data) {
			t.Fatalf("after the calls: %v", err)
		}
		lent = append(lent, m)
	}
	more, err := c.Lend(shared.MaxRun(c))
	if err != nil || shared.IsInPlace(c, more.Data) {
		t.Errorf("more than half of the heap is lent to large messages: %v", err)
	}
	for _, m := range append(lent, more) {
		m.Free()
	}
}

// A stream of messages in adjacent blocks arrives in order, beside ones that are copied.
func TestStreamOfLargeMessages(t *testing.T) {
	client, _ := pairOf(t)
	s, err := client.Open(t.Context(), &call.Head{Method: "/test/Echo", Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{1<<20 + 1, 5, 2<<20 + 77, 5 << 20, 1 << 20, 3 << 20}
	sent := make(chan error, 1)
	go func() {
		for _, size := range sizes {
			if err := s.Send(&call.Message{Data: pattern(size)}); err != nil {
				sent <- err
				return
			}
		}
		sent <- s.CloseSend()
	}()
	for _, size := range sizes {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.Data, pattern(size)) {
			t.Errorf("a message of %d bytes arrived as one of %d, or differs", size, len(m.Data))
		}
		m.Free()
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}
