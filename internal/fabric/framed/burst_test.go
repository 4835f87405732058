package framed

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// gatedConn holds its writes back while the gate is closed, and counts them.
type gatedConn struct {
	net.Conn
	gate    atomic.Pointer[chan struct{}]
	entered chan struct{}
	writes  atomic.Int32
}

func (g *gatedConn) Write(p []byte) (int, error) {
	g.writes.Add(1)
	if gate := g.gate.Load(); gate != nil {
		select {
		case g.entered <- struct{}{}:
		default:
		}
		<-*gate
	}
	return g.Conn.Write(p)
}

// The pieces of a burst leave together, and their sender does not wait for the writes: with each
// piece in a write of its own, a stream of small messages spends its time in system calls.
func TestBurstLeavesTogether(t *testing.T) {
	const pieces, size = 100, 50
	near, far := net.Pipe()
	g := &gatedConn{Conn: near, entered: make(chan struct{}, 1)}
	client, server := closeAtEnd(t, Client(g, Options{burstGap: time.Hour, DeadAfter: time.Hour}), Server(far, Options{DeadAfter: time.Hour}))
	s := open(t, client, "burst")
	first := make([]byte, size)
	if err := s.Send(Piece{Data: first}); err != nil { // begins the burst
		t.Fatal(err)
	}
	peer, err := server.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(peer, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	g.gate.Store(&gate)
	before := g.writes.Load()
	for range pieces {
		if err := s.Send(Piece{Data: first}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-g.entered:
	case <-time.After(time.Minute):
		t.Fatal("nothing is written")
	}
	g.gate.Store(nil)
	close(gate)
	if _, err := io.ReadFull(peer, make([]byte, pieces*size)); err != nil {
		t.Fatal(err)
	}
	// One that waited at the gate, and few for all the others; pings may be among them.
	if n := g.writes.Load() - before; n > pieces/10 {
		t.Errorf("%d pieces left in %d writes", pieces, n)
	}
}

// The pieces of a burst that are longer than small frames leave together as well, and their sender
// goes on while they are written.
func TestBurstOfLongPieces(t *testing.T) {
	near, far := net.Pipe()
	g := &gatedConn{Conn: near, entered: make(chan struct{}, 1)}
	client, server := closeAtEnd(t, Client(g, Options{burstGap: time.Hour, DeadAfter: time.Hour}), Server(far, Options{DeadAfter: time.Hour}))
	s := open(t, client, "burst")
	piece := Piece{Data: make([]byte, 2*maxQueued)}
	const pieces = burstBytes/(2*maxQueued) - 1
	if err := s.Send(piece); err != nil { // begins the burst
		t.Fatal(err)
	}
	peer, err := server.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(peer, make([]byte, len(piece.Data))); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	g.gate.Store(&gate)
	sent := make(chan error, 1)
	go func() {
		var err error
		for range pieces {
			err = errors.Join(err, s.Send(piece))
		}
		sent <- err
	}()
	select {
	case err := <-sent:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the sender waits for the writes")
	}
	g.gate.Store(nil)
	close(gate)
	if _, err := io.ReadFull(peer, make([]byte, pieces*len(piece.Data))); err != nil {
		t.Fatal(err)
	}
}

// expecting is a receiver that consumes nothing, and expects n bytes when the first ones come.
type expecting struct {
	stream *Stream
	n, got int
	room   [4096]byte
	all    chan struct{}
}

func (e *expecting) Buffer(int) []byte { return e.room[:] }

func (e *expecting) Filled(n int) int {
	if e.got == 0 {
		e.stream.Expect(e.n)
	}
	if e.got += n; e.got == e.n {
		close(e.all)
	}
	return 0
}

func (*expecting) Ended() bool  { return false }
func (*expecting) Work()        {}
func (*expecting) Failed(error) {}

// A peer can send what its receiver expects without waiting for what is consumed, but no more
// than the connection's budget.
func TestExpect(t *testing.T) {
	const budget = secondWindow - firstWindow
	client, server := transports["tcp"](t, Options{Budget: budget})
	e := &expecting{n: firstWindow + budget, all: make(chan struct{})}
	server.Handle("expect", func(s *Stream, _ []byte) (Receiver, error) {
		e.stream = s
		return e, nil
	})
	s := open(t, client, "expect")
	written := make(chan error, 1)
	go func() {
		_, err := s.Write(make([]byte, e.n))
		written <- err
	}()
	select {
	case err := <-written:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the sender waits for credit")
	}
	<-e.all
	e.stream.Expect(1 << 30)
	e.stream.mu.Lock()
	credit, size := e.stream.in.window.credit, e.stream.in.window.size
	e.stream.mu.Unlock()
	if credit != 0 || size != firstWindow+budget {
		t.Errorf("beyond the budget: credit %d in a window of %d", credit, size)
	}
}

// What is expected of a long message widens the window to the bytes of a round trip, so that other
// streams' frames don't wait behind the rest of it.
func TestExpectable(t *testing.T) {
	for rtt, want := range map[time.Duration]int{
		50 * time.Microsecond: secondWindow,
		time.Millisecond:      highestRate / 1000,
		time.Second:           8 << 20,
	} {
		c := &Conn{o: Options{Window: 8 << 20}, budget: 64 << 20}
		c.live.minRTT.Store(int64(rtt))
		w := receiveWindow{conn: c, size: firstWindow, credit: 1000, consumed: firstWindow - 1000}
		if grant := w.expect(1 << 30); w.size != want || w.credit != want || grant != want-1000 {
			t.Errorf("%v: %d granted, credit %d in a window of %d, want %d", rtt, grant, w.credit, w.size, want)
		}
	}
}
