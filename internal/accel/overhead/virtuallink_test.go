package overhead

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/bridge"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// delayed is one end of a connection whose bytes arrive half a round trip after they were written.
// It works on a virtual clock.
type delayed struct {
	net.Conn
	delay time.Duration
	// perByte is for how long a byte that is written occupies the connection, in ns; 0: its rate is
	// unlimited.
	perByte  float64
	to, from chan segment
	closed   chan struct{}
	end      *sync.Once
	rest     []byte
}

type segment struct {
	due  time.Time
	data []byte
}

// delayedPair returns both ends of a connection with a rate in bytes/s, 0 for unlimited.
func delayedPair(rtt time.Duration, rate float64) (a, b net.Conn) {
	up, down := make(chan segment, 1<<16), make(chan segment, 1<<16)
	closed, end := make(chan struct{}), &sync.Once{}
	perByte := 0.0
	if rate > 0 {
		perByte = 1e9 / rate
	}
	one := func(to, from chan segment) net.Conn {
		return &delayed{delay: rtt / 2, perByte: perByte, to: to, from: from, closed: closed, end: end}
	}
	return one(up, down), one(down, up)
}

func (d *delayed) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(float64(len(p)) * d.perByte))
	select {
	case d.to <- segment{time.Now().Add(d.delay), append([]byte(nil), p...)}:
		return len(p), nil
	case <-d.closed:
		return 0, net.ErrClosed
	}
}

func (d *delayed) Read(p []byte) (int, error) {
	if len(d.rest) == 0 {
		select {
		case s := <-d.from:
			time.Sleep(time.Until(s.due))
			d.rest = s.data
		case <-d.closed:
			return 0, io.EOF
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *delayed) Close() error                   { d.end.Do(func() { close(d.closed) }); return nil }
func (*delayed) SetDeadline(time.Time) error      { return nil }
func (*delayed) SetReadDeadline(time.Time) error  { return nil }
func (*delayed) SetWriteDeadline(time.Time) error { return nil }

// memoryRing is a ring without shared memory: put gives bytes to send, got counts what has arrived.
type memoryRing struct {
	mu                  sync.Mutex
	changed             sync.Cond
	area                int
	published, released uint64
	got                 uint64
	err                 error
	woken               bool
	bytes               []byte // stands for those of either direction
}

func newMemoryRing(area int) *memoryRing {
	r := &memoryRing{area: area, bytes: make([]byte, area)}
	r.changed.L = &r.mu
	return r
}

func (r *memoryRing) update(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.changed.Broadcast()
}

// put publishes bytes, waiting for space.
func (r *memoryRing) put(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n > 0 && r.err == nil {
		room := r.area - int(r.published-r.released)
		if room == 0 {
			r.changed.Wait()
			continue
		}
		k := min(n, room)
		r.published += uint64(k)
		n -= k
		r.changed.Broadcast()
	}
}

// await waits until so many bytes have arrived in total.
func (r *memoryRing) await(total uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.got < total && r.err == nil {
		r.changed.Wait()
	}
}

func (r *memoryRing) TryNext() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes[:r.published-r.released]
}

func (r *memoryRing) AwaitBeyond(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.published <= n && !r.woken && r.err == nil {
		r.changed.Wait()
	}
	r.woken = false
}
func (r *memoryRing) Wake()              { r.update(func() { r.woken = true }) }
func (r *memoryRing) Release(n int)      { r.update(func() { r.released += uint64(n) }) }
func (r *memoryRing) AnnounceSpace()     {}
func (r *memoryRing) TryReserve() []byte { return r.bytes }
func (r *memoryRing) AwaitSpace(int)     {}
func (r *memoryRing) Commit(n int)       { r.update(func() { r.got += uint64(n) }) }
func (r *memoryRing) Area() int          { return r.area }

func (r *memoryRing) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *memoryRing) Fail(err error) error {
	r.update(func() {
		if err == nil {
			err = io.EOF
		}
		if r.err == nil {
			r.err = err
		}
	})
	return r.Err()
}

// exchange is some bytes there, an answer of some bytes, and the program's work after it.
type exchange struct {
	up, down int
	gap      time.Duration
}

// onVirtualLink returns how long exchanges take over the session's own transport, on a virtual clock;
// rate is that of the connection in bytes/s, 0 for unlimited. A test calls it within a bubble of
// synctest.
func onVirtualLink(t *testing.T, rtt time.Duration, rate float64, exchanges []exchange) time.Duration {
	a, b := delayedPair(rtt, rate)
	client, server := framed.Client(a, framed.Options{}), framed.Server(b, framed.Options{})
	up, down := newMemoryRing(ringArea), newMemoryRing(ringArea)
	ours, theirs := openStreams(t, client, server)
	lost := func(uint64, error) (bridge.Streams, uint64, error) { return bridge.Streams{}, 0, io.EOF }
	var running sync.WaitGroup
	running.Go(func() { _ = bridge.NewHalf(up, nil).Run(t.Context(), ours, lost) })
	running.Go(func() { _ = bridge.NewHalf(down, nil).Run(t.Context(), theirs, lost) })
	time.Sleep(20 * rtt) // the first pings measure the round trip
	began := time.Now()
	var there, back uint64
	for _, e := range exchanges {
		up.put(e.up)
		there += uint64(e.up)
		down.await(there)
		down.put(e.down)
		back += uint64(e.down)
		up.await(back)
		time.Sleep(e.gap)
	}
	took := time.Since(began)
	_ = client.Close()
	_ = server.Close()
	running.Wait()
	return took
}

// openStreams opens a session's streams, and returns both ends of them.
func openStreams(t *testing.T, client, server *framed.Conn) (ours, theirs bridge.Streams) {
	open := func() (mine, other *framed.Stream) {
		mine, err := client.Open(t.Context(), bridge.Method, nil)
		if err != nil {
			t.Fatal(err)
		}
		mine.Flush()
		if other, err = server.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
		return mine, other
	}
	ours.Data, theirs.Data = open()
	ours.Acks, theirs.Acks = open()
	return ours, theirs
}
