package calls

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/remote"
)

// A queue is one direction of a connection in memory.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	bytes   []byte
	held    bool // its reader is slow
	closed  bool
}

func newQueue() *queue {
	q := &queue{}
	q.changed.L = &q.mu
	return q
}

func (q *queue) update(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	q.changed.Broadcast()
}

// A queueConn is one end of a connection whose unread bytes are lost when the other end closes it,
// as with TCP when more bytes arrive at the closed end.
type queueConn struct {
	net.Conn // of the addresses
	in, out  *queue
}

func queuePair() (a, b *queueConn) {
	x, y := newQueue(), newQueue()
	p, q := net.Pipe()
	return &queueConn{p, x, y}, &queueConn{q, y, x}
}

func (c *queueConn) Read(b []byte) (n int, err error) {
	q := c.in
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && (q.held || len(q.bytes) == 0) {
		q.changed.Wait()
	}
	if n = copy(b, q.bytes); n == 0 {
		return 0, io.EOF
	}
	q.bytes = q.bytes[n:]
	return n, nil
}

func (c *queueConn) Write(b []byte) (int, error) {
	err := io.ErrClosedPipe
	c.out.update(func() {
		if !c.out.closed {
			c.out.bytes, err = append(c.out.bytes, b...), nil
		}
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *queueConn) Close() error {
	for _, q := range []*queue{c.in, c.out} {
		q.update(func() { q.closed, q.bytes = true, nil })
	}
	return c.Conn.Close()
}

func (c *queueConn) SetDeadline(time.Time) error      { return nil }
func (c *queueConn) SetReadDeadline(time.Time) error  { return nil }
func (c *queueConn) SetWriteDeadline(time.Time) error { return nil }

// waits answers when it may.
type waits struct{ began, answer chan struct{} }

func (w waits) Serve(s call.ServerStream) error { return nil }

func (w waits) ServeUnary(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
	close(w.began)
	<-w.answer
	return m, call.End{}, nil
}

// A node whose process is being replaced gets the response to its last call, though it reads it late.
func TestDrainedConnectionIsClosedByItsPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := queuePair()
		service := waits{make(chan struct{}), make(chan struct{})}
		life, otherLife := newLifetime(), newLifetime()
		in := newInbound(life, service, slog.New(slog.DiscardHandler))
		life.Go(func() {
			in.serve(life.ctx, framed.Server(here, framed.Options{}), fromNode, "dinghy", func() {})
		})
		p := newPeer("node harbour", otherLife, func(context.Context) (*remote.Conn, error) {
			return remote.New(framed.Client(there, framed.Options{}), remote.Options{}), nil
		})
		e := &peerEndpoint{id: "harbour/1", locate: func() (call.Transport, *peer) { return nil, p }}
		ended := make(chan error, 1)
		go func() {
			m, _, err := e.Unary(t.Context(), &call.Head{Method: "/a.B/C"}, &call.Message{Data: make([]byte, 1000)})
			m.Free()
			ended <- err
		}()
		<-service.began
		there.in.update(func() { there.in.held = true })
		time.AfterFunc(time.Second, func() { there.in.update(func() { there.in.held = false }) })
		in.drainNodes()
		close(service.answer)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		life.running.Wait()
		if !in.empty() {
			t.Error("the connection is left")
		}
		otherLife.cancel()
		otherLife.running.Wait()
		life.cancel()
	})
}

// A process does not end while a link that a sibling has made is not connected yet.
func TestReservedLink(t *testing.T) {
	in := newInbound(newLifetime(), waits{}, slog.New(slog.DiscardHandler))
	registered := in.reserveLink()
	if in.empty() {
		t.Error("a link that is being connected is not counted")
	}
	registered()
	registered()
	if !in.empty() {
		t.Error("a link is counted that has ended")
	}
}
