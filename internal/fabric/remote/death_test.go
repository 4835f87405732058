package remote

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// dying is a connection that breaks after a number of bytes, or of writes.
type dying struct {
	net.Conn
	bytes, writes atomic.Int64
}

func (d *dying) Write(p []byte) (int, error) {
	if d.writes.Add(-1) < 0 {
		d.Close()
		return 0, io.ErrClosedPipe
	}
	if left := d.bytes.Add(-int64(len(p))); left < 0 {
		n, _ := d.Conn.Write(p[:max(0, int64(len(p))+left)])
		d.Close()
		return n, io.ErrClosedPipe
	}
	return d.Conn.Write(p)
}

const never = 1 << 40

// TestDeathAtEveryStep breaks the connection after each write and at random bytes
// of either side, and expects every call and handler to end, with a status.
func TestDeathAtEveryStep(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, side := range []int{0, 1} {
		for n := range int64(40) {
			dieAt(t, side, never, n)
		}
		for range 120 {
			dieAt(t, side, rand.Int64N(3000), never)
		}
		for range 20 {
			dieAt(t, side, rand.Int64N(400<<10), never)
		}
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

func dieAt(t *testing.T, side int, bytes, writes int64) {
	a, b := net.Pipe()
	ends := []*dying{{Conn: a}, {Conn: b}}
	for i, d := range ends {
		d.bytes.Store(never)
		d.writes.Store(never)
		if i == side {
			d.bytes.Store(bytes)
			d.writes.Store(writes)
		}
	}
	of := framed.Options{DeadAfter: 2 * time.Second}
	h := &echo{}
	client := New(framed.Client(ends[0], of), Options{Handler: h})
	server := New(framed.Server(ends[1], of), Options{Handler: &unaryEcho{}})
	var calls sync.WaitGroup
	for _, c := range []*Conn{client, server} {
		calls.Go(func() { exchange(t, c, side, bytes, writes) })
	}
	calls.Wait()
	var closing sync.WaitGroup
	closing.Go(func() { client.Close() })
	closing.Go(func() { server.Close() })
	closing.Wait()
	if a, b := client.peerCalls.Load(), server.peerCalls.Load(); a != 0 || b != 0 {
		t.Errorf("side %d, %d bytes, %d writes: %d and %d calls are still counted", side, bytes, writes, a, b)
	}
}

// exchange makes each kind of call over a connection that may break at any time.
func exchange(t *testing.T, c *Conn, at ...any) {
	check := func(err error) {
		switch status.Code(err) {
		case codes.OK, codes.Unavailable, codes.Canceled:
		default:
			t.Errorf("%v: %v", at, err)
		}
	}
	ctx := t.Context()
	_, _, err := c.Unary(ctx, head("Echo"), &call.Message{Data: make([]byte, 30)})
	check(err)
	_, _, err = c.Unary(ctx, head("Echo"), &call.Message{Data: make([]byte, 100<<10)})
	check(err)
	waiting, cancel := context.WithCancel(ctx)
	h := head("Wait")
	h.Streaming = true
	w, err := c.Open(waiting, h)
	check(err)
	h = head("Echo")
	h.Streaming = true
	s, err := c.Open(ctx, h)
	check(err)
	if s != nil {
		for range 3 {
			if s.Send(&call.Message{Data: make([]byte, 10)}) != nil {
				break
			}
		}
		_ = s.CloseSend()
		_, _ = s.Header()
		for {
			if _, err = s.Recv(); err != nil {
				break
			}
		}
		if !errors.Is(err, io.EOF) {
			check(err)
		}
	}
	cancel()
	if w != nil {
		_, err = w.Recv()
		check(err)
	}
}
