package framed

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

// A heldConn delivers what is written, and then holds up the writer of a frame while held is set.
type heldConn struct {
	net.Conn
	frame []byte
	held  atomic.Pointer[chan struct{}]
}

// Write implements net.Conn.
func (c *heldConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if held := c.held.Load(); held != nil && bytes.Contains(b, c.frame) {
		<-*held
	}
	return n, err
}

// limits permit one stream. A held writer must not end the connection.
var limits = Options{MaxStreams: 1, DeadAfter: time.Minute}

// A caller at exactly its peer's limit may begin a stream as soon as it has seen the end of another
// one, however the end has left.
func TestNextStreamAtTheLimit(t *testing.T) {
	for name, end := range map[string]func(*Stream) error{
		"end":        (*Stream).CloseWrite,
		"with data":  func(s *Stream) error { _, err := s.out.send(make([]byte, maxQueued/2), true); return err },
		"large":      func(s *Stream) error { _, err := s.out.send(make([]byte, 2*maxQueued), true); return err },
		"last piece": func(s *Stream) error { return s.Send(Piece{Data: []byte("x"), End: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcp(t)
			holding := &heldConn{Conn: b}
			client, server := closeAtEnd(t, Client(a, limits), Server(holding, limits))
			first := open(t, client, "x")
			holding.frame = first.out.appendEnd(nil)
			if err := first.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			serving := accept(t, server)
			if _, err := io.ReadAll(serving); err != nil {
				t.Fatal(err)
			}
			released, ended := make(chan struct{}), make(chan error, 1)
			holding.held.Store(&released)
			go func() { ended <- end(serving) }()
			if _, err := io.ReadAll(first); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			second, err := client.Open(ctx, "x", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := second.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			reading := make(chan struct{})
			go func() {
				defer close(reading)
				if _, err := second.Read(make([]byte, 1)); outboard.KindOf(err) == outboard.Exhausted {
					cancel(err)
				}
			}()
			if _, err := server.Accept(ctx); err != nil {
				t.Errorf("the next stream is refused: %v", err)
			}
			holding.held.Store(nil)
			close(released)
			if err := <-ended; err != nil {
				t.Error(err)
			}
			_ = second.Close()
			<-reading
		})
	}
}

// A stream that this side resets counts until the RESET is on its way, so that the OPEN of the next
// one is not before it.
func TestResetBeforeTheNextStream(t *testing.T) {
	a, b := tcp(t)
	client, server := closeAtEnd(t, Client(a, limits), Server(b, limits))
	s := open(t, client, "x")
	s.Flush()
	accept(t, server)
	q := &client.out.queue
	q.mu.Lock()
	for q.claimed { // a goroutine is writing
		q.mu.Unlock()
		time.Sleep(time.Millisecond)
		q.mu.Lock()
	}
	pending := q.pending
	q.pending, q.claimed = make([]byte, queueBlock), true // the RESET waits
	q.mu.Unlock()
	reset := make(chan struct{})
	go func() {
		defer close(reset)
		s.Reset(outboard.Errorf(outboard.Busy, "", "no"))
	}()
	for aborted := false; !aborted; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		aborted = s.unregistered
		s.mu.Unlock()
	}
	if len(client.ownStreams) != 1 {
		t.Error("another stream may begin before the RESET")
	}
	q.mu.Lock()
	q.pending, q.claimed = pending, false
	q.spaceFreed.Broadcast()
	q.mu.Unlock()
	<-reset
	awaitNothingKept(t, "client", client)
	awaitNothingKept(t, "server", server)
}
