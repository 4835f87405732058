package collective

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// unwritable is a connection whose other end is closed: bytes that were sent before can be read.
type unwritable struct{ net.Conn }

func (unwritable) Write([]byte) (int, error) { return 0, syscall.ECONNRESET }

// A group ends with the reason that another rank has sent, also if a connection of that rank fails
// before the reason is read.
func TestReasonOutlivesItsConnection(t *testing.T) {
	const count = 1 << 10
	calls := map[string]Call{
		"exchange":  {Operation: AllReduce, Element: Float32, Reduction: Sum, Count: count},
		"ring":      {Operation: AllGather, Element: Float32, Count: count},
		"lossy":     {Operation: AllReduce, Element: Float32, Reduction: Sum, Count: count, Loss: 100},
		"broadcast": {Operation: Broadcast, Element: Float32, Count: count},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, arrive := beforeReason(t, Options{})
				done := make(chan error, 1)
				go func() { done <- g.Do(t.Context(), call, words(call.Bytes())) }()
				synctest.Wait() // until the write has failed
				arrive()
				if err := <-done; err == nil || !strings.Contains(err.Error(), "the reason") {
					t.Errorf("got %v, want the reason", err)
				}
			})
		})
	}
	t.Run("stream of datagrams", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			paths := lossyPaths(2, never)
			g, arrive := beforeReason(t, Options{Datagrams: paths[0]})
			_ = paths[1][0].Stream.Close()
			synctest.Wait() // until the end of the stream has been read
			arrive()
			<-g.Ended()
			if err := g.Err(); !strings.Contains(err.Error(), "the reason") {
				t.Errorf("got %v, want the reason", err)
			}
		})
	})
}

// Without a reason the rank counts as lost.
func TestWriteFailsWithoutReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := beforeReason(t, Options{})
		call := Call{Operation: Broadcast, Element: Float32, Count: 1}
		if err := g.Do(t.Context(), call, words(call.Bytes())); err == nil || !strings.Contains(err.Error(), "rank 1 is lost: connection reset") {
			t.Errorf("got %v, want that rank 1 is lost", err)
		}
	})
}

// beforeReason returns rank 0 of 2 whose writes fail, and a function by which it receives why rank 1
// has ended the group.
func beforeReason(t *testing.T, o Options) (g *Group, arrive func()) {
	t.Helper()
	conns := pipes(2)
	g, err := NewGroup(0, []net.Conn{nil, unwritable{conns[0][1]}}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g, func() {
		text := "the reason"
		if _, err := conns[1][0].Write(append(head{kind: kindAbort, length: uint32(len(text))}.append(nil), text...)); err != nil {
			t.Error(err)
		}
	}
}
