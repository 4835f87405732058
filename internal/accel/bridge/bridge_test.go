package bridge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/shm"
)

// ringPair returns both ends of a ring.
func ringPair(t testing.TB) (client, worker *shm.Ring) {
	t.Helper()
	client, err := shm.Create(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(client.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	worker, err = shm.Open(os.NewFile(uintptr(fd), "ring"), shm.Worker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Unmap)
	t.Cleanup(worker.Unmap)
	return client, worker
}

// A cuttable is a connection that breaks once a number of bytes have passed.
type cuttable struct {
	net.Conn
	left *atomic.Int64 // both directions together
}

var errCut = errors.New("the cable is cut")

func (c cuttable) pass(n int, err error) (int, error) {
	if c.left.Add(-int64(n)) < 0 {
		_ = c.Close()
		return 0, errCut // bytes that were read are lost
	}
	return n, err
}

func (c cuttable) Read(b []byte) (int, error) { return c.pass(c.Conn.Read(b)) }

// Write may send a part of b.
func (c cuttable) Write(b []byte) (int, error) {
	if left := c.left.Load(); int64(len(b)) > left {
		n, _ := c.Conn.Write(b[:max(left, 0)])
		_ = c.Close()
		return n, errCut
	}
	return c.pass(c.Conn.Write(b))
}

// A cutNetwork joins the halves of one session by connections that are cut.
type cutNetwork struct {
	t      *testing.T
	listen net.Listener
	host   Host
	token  Token
	dialed atomic.Int64
	// next is the number of bytes that the next connection carries.
	next func() int64

	program, worker *shm.Ring // what the program and the worker use
	near, far       error     // how the halves ended
	halves          sync.WaitGroup
	end             context.CancelFunc
}

// newCutNetwork starts a session.
func newCutNetwork(t *testing.T, patience time.Duration, next func() int64) *cutNetwork {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &cutNetwork{t: t, listen: listener, token: NewToken(), next: next}
	program, near := ringPair(t)
	far, worker := ringPair(t)
	n.program, n.worker = program, worker
	ctx, cancel := context.WithCancel(t.Context())
	n.end = cancel
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { n.serve(ctx, nc, far) })
		}
	})
	n.halves.Go(func() {
		s, _, err := n.dial(Opening{Kind: Open, Patience: patience}, false)
		if err != nil {
			t.Error(err)
			return
		}
		n.near = NewHalf(near, nil).Run(ctx, s, func(received uint64, _ error) (Streams, uint64, error) {
			for {
				s, peer, err := n.dial(Opening{Kind: Resume, Received: received}, true)
				if err == nil || outboard.KindOf(err) == outboard.NotFound || ctx.Err() != nil {
					return s, peer, err
				}
			}
		})
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		n.halves.Wait()
		serving.Wait()
	})
	return n
}

// dial opens the session's streams on a new connection.
func (n *cutNetwork) dial(o Opening, answer bool) (Streams, uint64, error) {
	n.dialed.Add(1)
	nc, err := net.Dial("tcp", n.listen.Addr().String())
	if err != nil {
		return Streams{}, 0, err
	}
	left := &atomic.Int64{}
	left.Store(n.next())
	conn := framed.Client(cuttable{nc, left}, framed.Options{})
	n.t.Cleanup(func() { _ = conn.Close() })
	o.Token = n.token
	var s Streams
	if s.Data, err = conn.Open(n.t.Context(), Method, o.Marshal()); err != nil {
		return s, 0, err
	}
	if s.Acks, err = conn.Open(n.t.Context(), Method, Opening{Kind: Acks, Token: n.token}.Marshal()); err != nil || !answer {
		return s, 0, err
	}
	peer, err := s.Peer()
	return s, peer, err
}

// serve is the device's node.
func (n *cutNetwork) serve(ctx context.Context, nc net.Conn, ring *shm.Ring) {
	conn := framed.Server(nc, framed.Options{})
	defer conn.Close()
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		s, err := conn.Accept(ctx)
		if err != nil {
			return
		}
		streams.Go(func() {
			o, err := ParseOpening(s.Header())
			if err == nil && o.Kind == Open {
				err = n.serveSession(ctx, o, s, ring)
			} else if err == nil {
				err = n.host.Pass(ctx, o, "dinghy", s)
			}
			if err != nil {
				s.Reset(err)
			}
		})
	}
}

func (n *cutNetwork) serveSession(ctx context.Context, o Opening, s *framed.Stream, ring *shm.Ring) error {
	hosted, err := n.host.Add(o, "dinghy", s)
	if err != nil {
		return err
	}
	defer hosted.Remove(nil)
	n.halves.Add(1)
	defer n.halves.Done()
	n.far = hosted.Run(ctx, NewHalf(ring, nil))
	return nil
}

// put writes all bytes to a ring.
func put(r *shm.Ring, p []byte) error {
	for len(p) > 0 {
		b, err := r.Reserve(1)
		if err != nil {
			return err
		}
		n := copy(b, p)
		r.Commit(n)
		p = p[n:]
	}
	return nil
}

// get reads n bytes from a ring.
func get(r *shm.Ring, n int) ([]byte, error) {
	var all []byte
	for len(all) < n {
		b, err := r.Next(1)
		if err != nil {
			return all, err
		}
		b = b[:min(len(b), n-len(all))]
		all = append(all, b...)
		r.Release(len(b))
	}
	return all, nil
}

// serveRequests is the worker: it answers each request, a length and as many bytes, with the bytes
// in reverse order.
func serveRequests(r *shm.Ring) error {
	for {
		size, err := get(r, 4)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := get(r, int(binary.LittleEndian.Uint32(size)))
		if err != nil {
			return err
		}
		if err := put(r, reversed(body)); err != nil {
			return err
		}
	}
}

func reversed(b []byte) []byte {
	out := make([]byte, len(b))
	for i, v := range b {
		out[len(b)-1-i] = v
	}
	return out
}

// TestCuts exchanges requests and answers of all sizes while the connection is cut 100 times at
// random places, also in the middle of openings, frames and acknowledgements.
func TestCuts(t *testing.T) {
	const cuts = 100
	random := rand.New(rand.NewPCG(1, 2))
	var left atomic.Int64
	left.Store(cuts)
	var mu sync.Mutex
	n := newCutNetwork(t, time.Minute, func() int64 {
		mu.Lock()
		defer mu.Unlock()
		if left.Add(-1) < 0 {
			return 1 << 40
		}
		return 1 + random.Int64N(40<<10)<<random.IntN(4)
	})
	worked := make(chan error, 1)
	go func() { worked <- serveRequests(n.worker) }()
	for i := 0; left.Load() >= 0 || i < 50; i++ {
		body := make([]byte, rand.IntN(200)<<(i%11))
		for j := range body {
			body[j] = byte(rand.Uint32())
		}
		request := append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
		sent := make(chan error, 1)
		go func() { sent <- put(n.program, request) }()
		answer, err := get(n.program, len(body))
		if err := errors.Join(err, <-sent); err != nil {
			t.Fatalf("request %d, after %d connections: %v", i, n.dialed.Load(), err)
		}
		if !bytes.Equal(answer, reversed(body)) {
			t.Fatalf("request %d of %d bytes, after %d connections: another answer", i, len(body), n.dialed.Load())
		}
	}
	if err := n.program.Close(shm.Done); err != nil {
		t.Fatal(err)
	}
	if err := <-worked; err != nil {
		t.Errorf("the worker: %v", err)
	}
	n.halves.Wait()
	if n.near != nil || n.far != nil {
		t.Errorf("the halves ended with %v and %v", n.near, n.far)
	}
	if got := n.dialed.Load(); got <= cuts {
		t.Errorf("%d connections: there were no %d cuts", got, cuts)
	}
}

// A program that ends while its worker still answers has lost nothing: the worker gets all of it,
// and neither half calls it a failure.
func TestUnreadAnswers(t *testing.T) {
	n := newCutNetwork(t, time.Minute, func() int64 { return 1 << 40 })
	want := bytes.Repeat([]byte("request "), 10<<10)
	begun := make(chan struct{})
	answered := make(chan error, 1)
	go func() {
		for i := 0; ; i++ { // until the ring ends; the answers fill all rings on the way
			if i == 1 {
				close(begun)
			}
			b, err := n.worker.Reserve(32 << 10)
			if err != nil {
				answered <- err
				return
			}
			n.worker.Commit(len(b))
		}
	}()
	sent := make(chan error, 1)
	go func() { sent <- put(n.program, want) }()
	<-begun
	got, err := get(n.worker, len(want))
	if err := errors.Join(err, <-sent); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the worker got %d of %d bytes, %v", len(got), len(want), err)
	}
	if err := n.program.Close(shm.Done); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; !errors.Is(err, io.EOF) {
		t.Errorf("the worker's ring ended with %v", err)
	}
	n.halves.Wait()
	if n.near != nil || n.far != nil {
		t.Errorf("the halves ended with %v and %v", n.near, n.far)
	}
}

// TestGone ends both sides when the network does not come back.
func TestGone(t *testing.T) {
	n := newCutNetwork(t, 50*time.Millisecond, func() int64 { return 1000 })
	if err := put(n.program, make([]byte, 300)); err != nil {
		t.Fatal(err)
	}
	if _, err := get(n.worker, 300); err != nil {
		t.Fatal(err)
	}
	_ = n.listen.Close() // so that no connection follows the first one
	go func() { _ = put(n.program, make([]byte, 3000)) }()
	for name, r := range map[string]*shm.Ring{"worker": n.worker} {
		for {
			b, err := r.Next(1)
			if err != nil {
				if outboard.KindOf(err) != outboard.Unreachable {
					t.Errorf("the %s gets %v", name, err)
				}
				break
			}
			r.Release(len(b))
		}
	}
	n.end()
}

// TestReasons carries the reason of either end to the other one.
func TestReasons(t *testing.T) {
	for name, end := range map[string]func(n *cutNetwork) (other *shm.Ring){
		"the worker crashes": func(n *cutNetwork) *shm.Ring {
			_ = n.worker.Close(shm.ReasonOf(outboard.Errorf(outboard.SessionLost, "", "crashed")))
			return n.program
		},
		"the program crashes": func(n *cutNetwork) *shm.Ring {
			_ = n.program.Close(shm.ReasonOf(outboard.Errorf(outboard.SessionLost, "", "crashed")))
			return n.worker
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newCutNetwork(t, time.Minute, func() int64 { return 1 << 40 })
			if err := put(n.program, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := get(n.worker, 1); err != nil {
				t.Fatal(err)
			}
			other := end(n)
			if _, err := other.Next(1); outboard.KindOf(err) != outboard.SessionLost {
				t.Errorf("the other side gets %v", err)
			}
			n.halves.Wait()
		})
	}
}

// A stranger with another identity does not get a session, even with its token.
func TestOwner(t *testing.T) {
	n := newCutNetwork(t, time.Minute, func() int64 { return 1 << 40 })
	if err := put(n.program, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := get(n.worker, 1); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]struct {
		opening Opening
		owner   string
	}{
		"another node":  {Opening{Kind: Resume, Token: n.token}, "stranger"},
		"another token": {Opening{Kind: Resume, Token: NewToken()}, "dinghy"},
	} {
		near, far := net.Pipe()
		conn, peer := framed.Client(near, framed.Options{}), framed.Server(far, framed.Options{})
		s, err := conn.Open(t.Context(), Method, o.opening.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.host.Pass(t.Context(), o.opening, o.owner, s); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("%s: %v", name, err)
		}
		_, _ = conn.Close(), peer.Close()
	}
}

// The connection is cut after the stream that begins a session has arrived, and before the other one
// has: the session begins with the next connection.
func TestCutBeforeTheBeginning(t *testing.T) {
	for _, received := range []uint64{0, 1} {
		var host Host
		token := NewToken()
		open := func(o ...Opening) (sent []*framed.Stream) {
			near, far := net.Pipe()
			conn, peer := framed.Client(near, framed.Options{}), framed.Server(far, framed.Options{})
			t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
			for _, o := range o {
				o.Token = token
				s, err := conn.Open(t.Context(), Method, o.Marshal())
				if err != nil {
					t.Fatal(err)
				}
				s.Flush()
				arrived, err := peer.Accept(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if o.Kind == Open {
					hosted, err := host.Add(o, "dinghy", arrived)
					if err != nil {
						t.Fatal(err)
					}
					program, ring := ringPair(t)
					if err := put(program, []byte("answer")); err != nil {
						t.Fatal(err)
					}
					ended := make(chan error, 1)
					ctx, end := context.WithCancel(context.Background())
					go func() { ended <- hosted.Run(ctx, NewHalf(ring, nil)) }()
					t.Cleanup(func() {
						_ = program.Close(shm.Done)
						end()
						if err := <-ended; outboard.KindOf(err) == outboard.Protocol != (received > 0) {
							t.Errorf("the session ended with %v", err)
						}
						hosted.Remove(nil)
					})
				} else if err := host.Pass(t.Context(), o, "dinghy", arrived); err != nil {
					t.Fatal(err)
				}
				sent = append(sent, s)
			}
			return sent
		}
		lost := open(Opening{Kind: Open, Patience: time.Minute})
		resumed := open(Opening{Kind: Resume, Received: received}, Opening{Kind: Acks})
		position, err := readPosition(resumed[0])
		if received > 0 {
			if outboard.KindOf(err) != outboard.Protocol {
				t.Errorf("a position that was not sent: %d, %v", position, err)
			}
			continue
		}
		answer := make([]byte, len("answer"))
		_, readErr := io.ReadFull(resumed[0], answer)
		if err := errors.Join(err, readErr); err != nil || position != 0 || string(answer) != "answer" {
			t.Errorf("%d bytes have arrived, then %q: %v", position, answer, err)
		}
		if _, err := lost[0].Read(make([]byte, 1)); outboard.KindOf(err) != outboard.SessionLost {
			t.Errorf("the first stream ended with %v", err)
		}
	}
}

// A borrowing node opens streams of sessions that do not begin, and resets them: each would wait,
// with the bytes that were sent on it. Those of other nodes are served.
func TestStreamsWithoutASessionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		conn, peer := framed.Client(near, framed.Options{}), framed.Server(far, framed.Options{})
		s, err := conn.Open(t.Context(), Method, nil)
		if err != nil {
			t.Fatal(err)
		}
		var h Host
		var refused atomic.Int32
		var waiting sync.WaitGroup
		pass := func(owner string) error {
			return h.Pass(t.Context(), Opening{Kind: Acks, Token: NewToken()}, owner, s)
		}
		for range 2 * maxUnpaired {
			waiting.Go(func() {
				switch err := pass("dinghy"); outboard.KindOf(err) {
				case outboard.Exhausted:
					refused.Add(1)
				case outboard.NotFound:
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := refused.Load(); n != maxUnpaired {
			t.Errorf("%d of %d streams were refused", n, 2*maxUnpaired)
		}
		if _, err := h.Add(Opening{Token: NewToken()}, "dinghy", s); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("one that begins a session: %v", err)
		}
		if err := h.Pass(t.Context(), Opening{Kind: Resume, Token: NewToken()}, "dinghy", s); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("one that resumes a session: %v", err)
		}
		if err := pass("raft"); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("another node's: %v", err)
		}
		waiting.Wait()
		for range 2 * maxUnpaired { // nothing is left of them, nor of sessions that end before they begin
			d, err := h.Add(Opening{Token: NewToken()}, "dinghy", s)
			if err != nil {
				t.Fatal(err)
			}
			d.Remove(nil)
		}
		if len(h.unpaired) > 0 {
			t.Errorf("waiting streams: %v", h.unpaired)
		}
		_, _ = conn.Close(), peer.Close()
	})
}

func FuzzOpening(f *testing.F) {
	f.Add(Opening{Kind: Resume, Token: NewToken(), Received: 1 << 40, Patience: time.Minute}.Marshal())
	f.Add(Opening{Kind: Open, Claim: []byte("claim")}.Marshal())
	f.Add([]byte{Version})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOpening(b)
		if err != nil {
			if outboard.KindOf(err) != outboard.Protocol {
				t.Errorf("kind %v", outboard.KindOf(err))
			}
			return
		}
		if again, err := ParseOpening(o.Marshal()); err != nil || cmp.Diff(o, again) != "" {
			t.Errorf("%+v became %+v, %v", o, again, err)
		}
	})
}

func TestVersionSkewIsNamed(t *testing.T) {
	for name, header := range map[string][]byte{"older": {Version - 1, 0}, "empty": nil, "short": {Version, 0, 1}} {
		if _, err := ParseOpening(header); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: got %v, want a protocol error", name, err)
		}
	}
}
