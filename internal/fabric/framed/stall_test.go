package framed

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

// stalling connects a Conn to a peer that speaks the protocol by hand, and returns the stream that
// the peer has opened.
func stalling(t *testing.T) (*Conn, *Stream, net.Conn) {
	t.Helper()
	near, peer := net.Pipe()
	c := Server(near, Options{})
	if _, err := peer.Write(appendOpen([]byte(preface), 1, "session", nil)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c, s, peer
}

// fullSink is a sink with space that is never enough.
type fullSink struct{ space []byte }

func (k fullSink) Reserve(int) ([]byte, error) { return k.space, nil }
func (k fullSink) TryReserve() []byte          { return k.space }
func (k fullSink) Commit(int)                  {}

// A peer that sends a frame a byte at a time does not keep a stream that this side has ended, nor
// the memory into which its bytes are read.
func TestStalledFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, peer := stalling(t)
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		copied := make(chan error, 1)
		go func() { copied <- s.CopyTo(fullSink{make([]byte, maxData)}) }()
		synctest.Wait() // the frame is read into the sink, and not buffered
		var sending sync.WaitGroup
		defer sending.Wait()
		sending.Go(func() {
			b := header{frameData, maxData, 1}.append(nil)
			for {
				if _, err := peer.Write(b); err != nil {
					return
				}
				time.Sleep(time.Second)
				b = b[:1]
			}
		})
		time.Sleep(time.Minute) // in the middle of the frame
		if err := c.Err(); err != nil {
			t.Fatalf("a slow peer's connection ended: %v", err)
		}
		s.Reset(outboard.Errorf(outboard.SessionLost, "", "the lease has ended"))
		if err := <-copied; err == nil {
			t.Error("the stream was copied")
		}
		if !c.Lost() {
			t.Errorf("the connection ended with %v", c.Err())
		}
		_, _ = peer.Close(), c.Close()
	})
}

// A peer that reads nothing does not keep a sender, whose memory it does not release before, though
// it is not silent.
func TestPeerThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, peer := stalling(t)
		var sending sync.WaitGroup
		defer sending.Wait()
		sending.Go(func() {
			for range 3600 {
				if _, err := peer.Write(appendCredit(nil, 1, 1)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
			_ = peer.Close()
		})
		began := time.Now()
		if _, err := s.Write(make([]byte, maxData)); err == nil {
			t.Error("the bytes were sent")
		}
		if took := time.Since(began); took > 2*writeLimit || !c.Lost() {
			t.Errorf("the connection ended after %v with %v", took, c.Err())
		}
		_ = c.Close()
	})
}
