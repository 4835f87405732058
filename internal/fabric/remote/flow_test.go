package remote

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/fabric/call"
)

// meter counts what is written to a connection without TLS, and notes where each
// OPEN frame begins.
type meter struct {
	net.Conn
	total atomic.Int64

	head  []byte
	skip  int
	opens []int64
}

func (m *meter) Write(p []byte) (int, error) {
	m.scan(p)
	n, err := m.Conn.Write(p)
	return n, err
}

// scan runs where writes take turns.
func (m *meter) scan(p []byte) {
	at := m.total.Load()
	for len(p) > 0 {
		if m.skip > 0 {
			n := min(m.skip, len(p))
			m.skip, p, at = m.skip-n, p[n:], at+int64(n)
			continue
		}
		m.head, p, at = append(m.head, p[0]), p[1:], at+1
		if len(m.head) == 8 {
			if m.head[3] == 1 {
				m.opens = append(m.opens, at-8)
			}
			m.skip = int(binary.LittleEndian.Uint32(m.head) & 0xffffff)
			m.head = m.head[:0]
		}
	}
	m.total.Store(at)
}

// TestLargeMessagesLetSmallCallsPass makes small calls while messages of 32 MiB are
// under way without a pause, and counts the bytes on the wire between the moment that a
// call is made and its OPEN. A call that had to wait for a message would see half of
// one on average; the median sees little more than the frame that was being written.
func TestLargeMessagesLetSmallCallsPass(t *testing.T) {
	const size, calls = 32 << 20, 20
	a, b := tcp(t)
	m := &meter{Conn: a}
	m.skip = len(greeting)
	client, _ := ends(t, m, b, Options{}, Options{Handler: &echo{}, MaxMessage: size})
	h := head("Count")
	h.Streaming = true
	s, err := client.Open(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	var bulk sync.WaitGroup
	var enough atomic.Bool
	sent := 0
	bulk.Go(func() {
		for data := make([]byte, size); !enough.Load(); sent += size {
			if err := s.Send(&call.Message{Data: data}); err != nil {
				t.Error(err)
				return
			}
		}
		_ = s.CloseSend()
	})
	defer bulk.Wait()
	defer enough.Store(true)
	var made []int64
	for range calls {
		made = append(made, m.total.Load())
		if _, _, err := client.Unary(t.Context(), head("Echo"), &call.Message{Data: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
	}
	enough.Store(true)
	bulk.Wait()
	got, err := s.Recv()
	if err != nil || string(got.Data) != strconv.Itoa(sent) {
		t.Fatalf("received %v of %d bytes, %v", got, sent, err)
	}
	between := make([]int64, calls)
	for i := range between {
		between[i] = m.opens[i+1] - made[i]
	}
	slices.Sort(between)
	if median := between[calls/2]; median > 1<<20 {
		t.Errorf("%d bytes go between a call and its OPEN; all: %d", median, between)
	}
}

// BenchmarkSmallBesideLarge measures calls of 64 bytes to another process alone, and
// while a stream sends messages of 1 GiB to it without a pause.
func BenchmarkSmallBesideLarge(b *testing.B) {
	for _, beside := range []string{"alone", "beside"} {
		b.Run(beside, func(b *testing.B) {
			p := spawn(b, "streams")
			c, err := Dial(b.Context(), p.addr, p.tls, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { c.Close() })
			var bulk sync.WaitGroup
			ctx, cancel := context.WithCancel(b.Context())
			if beside == "beside" {
				h := head("Count")
				h.Streaming, h.Priority = true, call.Low
				s, err := c.Open(ctx, h)
				if err != nil {
					b.Fatal(err)
				}
				// Messages of 32 MiB: 1 GiB in 32 of them is the same to the wire.
				bulk.Go(func() {
					for data := make([]byte, 32<<20); s.Send(&call.Message{Data: data}) == nil; {
					}
				})
			}
			for b.Loop() {
				if _, _, err := c.Unary(b.Context(), head("Echo"), &call.Message{Data: make([]byte, 64)}); err != nil {
					b.Fatal(err)
				}
			}
			cancel()
			bulk.Wait()
		})
	}
}

// TestSlowHandlerHoldsItsCallerOnly has a handler that does not receive: its caller
// gets no further than the window, and other calls pass.
func TestSlowHandlerHoldsItsCallerOnly(t *testing.T) {
	const size, messages, window = 1000, 2000, 256 << 10
	release := make(chan struct{})
	h := serverFunc(func(s call.ServerStream) error {
		if s.Head().Streaming {
			<-release
			return count(s)
		}
		m, err := s.Recv()
		if err != nil {
			return err
		}
		return s.Send(m)
	})
	client, _ := pair(t, true, Options{}, Options{Handler: h})
	slow := head("Slow")
	slow.Streaming = true
	s, err := client.Open(t.Context(), slow)
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	var sending sync.WaitGroup
	sending.Go(func() {
		for range messages {
			if err := s.Send(&call.Message{Data: make([]byte, size)}); err != nil {
				t.Error(err)
			}
			sent.Add(1)
		}
		_ = s.CloseSend()
	})
	for sent.Load() < window/(size+recordSize) {
		runtime.Gosched()
	}
	for range 50 { // it would get on meanwhile
		if _, _, err := client.Unary(t.Context(), head("Echo"), &call.Message{Data: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
	}
	// The first message counts as being received: it needs no credit.
	if n := sent.Load(); n > window/size+2 {
		t.Errorf("%d messages of %d bytes were sent to a handler that receives none", n, size)
	}
	close(release)
	sending.Wait()
	if m, err := s.Recv(); err != nil || string(m.Data) != strconv.Itoa(size*messages) {
		t.Errorf("received %v, %v", m, err)
	}
}

// creditMeter notes the credit that a side grants, on a connection without TLS.
type creditMeter struct {
	net.Conn
	head    []byte
	skip    int
	largest atomic.Int64
}

func (m *creditMeter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if m.skip > 0 {
			n := min(m.skip, len(rest))
			m.skip, rest = m.skip-n, rest[n:]
			continue
		}
		m.head, rest = append(m.head, rest[0]), rest[1:]
		switch {
		case len(m.head) == 8 && m.head[3] != 3: // no CREDIT
			m.skip = int(binary.LittleEndian.Uint32(m.head) & 0xffffff)
			m.head = m.head[:0]
		case len(m.head) == 12:
			m.largest.Store(max(m.largest.Load(), int64(binary.LittleEndian.Uint32(m.head[8:]))))
			m.head = m.head[:0]
		}
	}
	return m.Conn.Write(p)
}

// A long message gets credit for all of it when its length is known and the round trip is long: a
// sender that gets credit only for what was read waits for it, once for each half of the window.
func TestLongMessageGetsCreditAtOnce(t *testing.T) {
	const size = 4 << 20
	for name, unary := range map[string]bool{"unary": true, "stream": false} {
		t.Run(name, func(t *testing.T) {
			a, b := tcp(t)
			m := &creditMeter{Conn: b, skip: len(greeting)}
			far := netem.Emulate(a, netem.Link{RTT: 4 * time.Millisecond})
			client, _ := ends(t, far, m, Options{}, Options{Handler: &unaryEcho{}})
			h := head("Echo")
			data := make([]byte, size)
			if unary {
				out, _, err := client.Unary(t.Context(), h, &call.Message{Data: data})
				if err != nil {
					t.Fatal(err)
				}
				out.Free()
			} else {
				h.Streaming = true
				s, err := client.Open(t.Context(), h)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Send(&call.Message{Data: data}); err != nil {
					t.Fatal(err)
				}
				out, err := s.Recv()
				if err != nil {
					t.Fatal(err)
				}
				out.Free()
			}
			if got := m.largest.Load(); got < size-512<<10 { // the first window is half of that
				t.Errorf("the largest credit was %d, for a message of %d bytes", got, size)
			}
		})
	}
}
