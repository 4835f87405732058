package framed

import (
	"io"
	"testing"
	"time"
)

// answering is a receiver that answers at the end of what it gets, as a handler does that the
// connection's reader runs.
type answering struct {
	stream *Stream
	room   [64]byte
}

func (a *answering) Buffer(int) []byte { return a.room[:] }
func (*answering) Filled(n int) int    { return n }
func (*answering) Ended() bool         { return true }
func (*answering) Failed(error)        {}

func (a *answering) Work() {
	_ = a.stream.Send(Piece{Data: []byte("answer"), End: true, Later: true})
}

// A stream that arrived as a whole before its acceptor is answered at once, not with the next ping:
// the first call on a new connection would take a second otherwise.
func TestEarlyStreamIsAnsweredAtOnce(t *testing.T) {
	client, server := transports["tcp"](t, Options{DeadAfter: time.Hour}) // no ping helps
	s := open(t, client, "early")
	if _, err := s.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); !ended(server, s.id); {
		if time.Now().After(limit) {
			t.Fatal("the stream does not arrive")
		}
		<-time.After(time.Millisecond)
	}
	server.Handle("early", func(s *Stream, _ []byte) (Receiver, error) { return &answering{stream: s}, nil })
	answer := make(chan string, 1)
	go func() {
		b, err := io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
		answer <- string(b)
	}()
	select {
	case got := <-answer:
		if got != "answer" {
			t.Errorf("got %q", got)
		}
	case <-time.After(time.Minute):
		t.Error("no answer comes")
	}
}

// ended reports whether all of a stream of the peer has arrived.
func ended(c *Conn, id uint32) bool {
	c.mu.Lock()
	s := c.streams[id]
	c.mu.Unlock()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in.eof
}
