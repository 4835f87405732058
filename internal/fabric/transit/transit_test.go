package transit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// A hop is a process that ends connections: a callee or a proxy.
type hop struct {
	t    *testing.T
	path string
}

type handlerFunc func(call.ServerStream) error

func (f handlerFunc) Serve(s call.ServerStream) error { return f(s) }

func listen(t *testing.T, name string, h handlerFunc) *hop {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	l, err := shared.Listen(path, shared.Options{Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, func(*shared.Conn) error { return nil }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &hop{t, path}
}

// A line is the connection to a hop that new calls take, which is given up again and
// again.
type line struct {
	to *hop

	mu   sync.Mutex
	conn *shared.Conn
	set  *StreamSet
	old  sync.WaitGroup
}

func newLine(to *hop) *line {
	l := &line{to: to}
	l.dial()
	to.t.Cleanup(func() {
		l.old.Wait()
		_ = l.conn.Close()
	})
	return l
}

func (l *line) dial() {
	conn, err := shared.Dial(context.Background(), l.to.path, shared.Options{})
	if err != nil {
		l.to.t.Error(err)
		return
	}
	l.conn, l.set = conn, new(StreamSet)
}

func (l *line) open(ctx context.Context, h *call.Head) (call.ClientStream, *StreamSet, error) {
	l.mu.Lock()
	conn, set := l.conn, l.set
	l.mu.Unlock()
	s, err := conn.Open(ctx, h)
	return s, set, err
}

// change gives the connection up, and returns what waits until it is closed.
func (l *line) change() func() {
	l.mu.Lock()
	conn, set := l.conn, l.set
	l.dial()
	l.mu.Unlock()
	gone := make(chan struct{})
	l.old.Go(func() {
		defer close(gone)
		ctx, cancel := context.WithCancel(context.Background())
		var moving sync.WaitGroup
		moving.Go(func() { set.Move(ctx) })
		if err := conn.Finish(context.Background()); err != nil {
			l.to.t.Error(err)
		}
		cancel()
		moving.Wait()
		_ = conn.Close()
	})
	return func() { <-gone }
}

// forward is somebody in the middle.
func forward(to *line) handlerFunc {
	return func(s call.ServerStream) error {
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		up, err := Open(ctx, s.Head(), to.open)
		if err != nil {
			return err
		}
		go func() { // it may wait for the caller when the callee has ended
			for {
				m, err := s.Recv()
				if errors.Is(err, io.EOF) {
					_ = up.CloseSend()
					return
				}
				if err != nil {
					cancel()
					return
				}
				if up.Send(m) != nil {
					return
				}
			}
		}()
		if md, err := up.Header(); err == nil && md != nil {
			if err := s.SendHeader(md); err != nil {
				return err
			}
		}
		for {
			m, err := up.Recv()
			if err != nil {
				s.SetTrailer(up.Trailer())
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if err := s.Send(m); err != nil {
				return err
			}
		}
	}
}

func message(n uint64, size int) *call.Message {
	return &call.Message{Data: binary.LittleEndian.AppendUint64(make([]byte, size, size+8), n)}
}

func numberIn(m *call.Message) uint64 {
	defer m.Free()
	return binary.LittleEndian.Uint64(m.Data[len(m.Data)-8:])
}

// echo answers each message; the header comes with the first, if it is not said before.
func echo(s call.ServerStream) error {
	if s.Head().Metadata.Get("early") != nil {
		if err := s.SendHeader(metadata.MD{"head": {"early"}}); err != nil {
			return err
		}
	}
	for n := uint64(1); ; n++ {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			s.SetTrailer(metadata.MD{"tail": {fmt.Sprint(n - 1)}})
			return nil
		}
		if err != nil {
			return err
		}
		if got := numberIn(m); got != n {
			return fmt.Errorf("callee: got %d, want %d", got, n)
		}
		if n == 1 && s.Head().Metadata.Get("early") == nil {
			if err := s.SendHeader(metadata.MD{"head": {"late"}}); err != nil {
				return err
			}
		}
		if err := s.Send(message(n, int(n%7)*3000)); err != nil {
			return err
		}
	}
}

// A chat is a stream on which messages flow each way until it is stopped.
type chat struct {
	stream *Caller
	want   string // the header
	sent   atomic.Uint64
	got    atomic.Uint64
}

func (c *chat) send(stop <-chan struct{}) error {
	for n := uint64(1); ; n++ {
		select {
		case <-stop:
			return c.stream.CloseSend()
		default:
		}
		if err := c.stream.Send(message(n, int(n%5)*2000)); err != nil {
			return fmt.Errorf("send %d: %w", n, err)
		}
		c.sent.Store(n)
	}
}

func (c *chat) receive() error {
	md, err := c.stream.Header()
	if err != nil || fmt.Sprint(md.Get("head")) != "["+c.want+"]" {
		return fmt.Errorf("header %v, %w", md, err)
	}
	for n := uint64(1); ; n++ {
		m, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			if sent := c.sent.Load(); n-1 != sent || fmt.Sprint(c.stream.Trailer().Get("tail")) != fmt.Sprintf("[%d]", sent) {
				return fmt.Errorf("%d sent, %d received, trailer %v", sent, n-1, c.stream.Trailer())
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive %d: %w", n, err)
		}
		if got := numberIn(m); got != n {
			return fmt.Errorf("received %d, want %d", got, n)
		}
		c.got.Store(n)
	}
}

// Streams that pass a hop in the middle keep their messages, all and in order, while
// the connections on both sides of it are given up all the time, and each old
// connection ends.
func TestMessagesAcrossMoves(t *testing.T) {
	var callees Callees
	back := newLine(listen(t, "server", func(s call.ServerStream) error {
		return callees.Serve(s, echo)
	}))
	front := newLine(listen(t, "middle", forward(back)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	var working sync.WaitGroup
	var chats []*chat
	for i := range 4 {
		h, want := &call.Head{Method: "/a/B", Streaming: true}, "late"
		if i%2 == 0 {
			h.Metadata, want = metadata.MD{"early": {"1"}}, "early"
		}
		s, err := Open(ctx, h, front.open)
		if err != nil {
			t.Fatal(err)
		}
		c := &chat{stream: s, want: want}
		chats = append(chats, c)
		working.Go(func() {
			if err := c.send(stop); err != nil {
				t.Error(err)
			}
		})
		working.Go(func() {
			if err := c.receive(); err != nil {
				t.Error(err)
				cancel()
			}
		})
	}
	for range moves {
		var gone []func()
		pick := rand.IntN(3)
		if pick != 0 {
			gone = append(gone, front.change())
		}
		if pick != 1 {
			gone = append(gone, back.change())
		}
		for _, wait := range gone {
			wait()
		}
	}
	close(stop)
	working.Wait()
	for i, c := range chats {
		if c.got.Load() == 0 {
			t.Errorf("stream %d did not flow", i)
		}
	}
}

const moves = 10
