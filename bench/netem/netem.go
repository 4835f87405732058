// Package netem emulates the bandwidth and the delay of a network path, for tests and benchmarks:
// [Emulate] one end of a connection, or [StartRelay] between two processes.
package netem

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Emulate returns one end of a connection with the bandwidth and the delay of link; the other end
// stays as it is. Bytes of both directions are delivered half an RTT after they have been
// serialised at the link's bandwidth, without waiting for one another: many can be in flight. It
// sleeps to deadlines; [Relay.Late] returns by how much deliveries missed them.
func Emulate(nc net.Conn, link Link) net.Conn {
	e := newEmulated(nc, newPath(link))
	e.start()
	return e
}

// newEmulated returns the near end of a connection over a path.
func newEmulated(nc net.Conn, p *path) *emulated {
	e := &emulated{Conn: nc, done: make(chan struct{})}
	e.out.init(p.link, &p.out)
	e.in.init(p.link, &p.in)
	return e
}

// path is what the connections over one link share: each direction serialises the bytes of all of
// them in the order in which they were sent, as the queue of a router does.
type path struct {
	link    Link
	out, in wire
}

func newPath(link Link) *path { return &path{link: link} }

// wire is one direction of a path.
type wire struct {
	mu   sync.Mutex
	idle time.Time // when all bytes that were sent will have been serialised
}

// serialise returns when bytes that are sent now, and whose serialisation takes so long, have left.
func (w *wire) serialise(takes time.Duration) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.idle.Before(now) {
		w.idle = now
	}
	w.idle = w.idle.Add(takes)
	return w.idle
}

func (e *emulated) start() {
	e.sending.Go(e.pumpOut)
	e.receiving.Go(e.pumpIn)
}

type emulated struct {
	net.Conn
	out, in            direction
	sending, receiving sync.WaitGroup
	close              sync.Once
	done               chan struct{}

	readMu sync.Mutex
	rest   []byte // the rest of a segment that Read has returned in part
}

// direction is one direction of a connection.
type direction struct {
	link Link
	wire *wire
	mu   sync.Mutex
	// changed signals new segments, free capacity and the end.
	changed  sync.Cond
	queue    []segment
	bytes    int
	capacity int
	last     time.Time // the time of the latest delivery
	err      error     // returned once the queue is empty
	late     *lateness // lateness of the deliveries; nil: not counted
	timer    timer     // of get
}

type segment struct {
	due  time.Time
	data []byte
}

// segmentSize bounds one delivery, so that the first bytes of a large write do not wait for its
// last bytes.
const segmentSize = 64 << 10

func (l *direction) init(link Link, w *wire) {
	l.link, l.wire = link, w
	l.changed.L = &l.mu
	l.timer.init()
	// The path's bandwidth-delay product, and the buffers of a sender and a receiver.
	l.capacity = 4 << 20
	if link.BitsPerSecond > 0 {
		l.capacity = max(1<<20, int(2*link.RTT.Seconds()*link.BitsPerSecond/8))
	} else {
		l.capacity += int(link.RTT.Seconds() * 4e9)
	}
}

// put enqueues a copy of p and blocks while the path is full.
func (l *direction) put(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), segmentSize)
		l.mu.Lock()
		for l.bytes > l.capacity && l.err == nil {
			l.changed.Wait()
		}
		if err := l.err; err != nil {
			l.mu.Unlock()
			return err
		}
		l.queue = append(l.queue, segment{l.schedule(n), append([]byte(nil), p[:n]...)})
		l.bytes += n
		l.changed.Broadcast()
		l.mu.Unlock()
		p = p[n:]
	}
	return nil
}

// schedule returns when n bytes that are sent now arrive.
func (l *direction) schedule(n int) time.Time {
	takes := time.Duration(0)
	if l.link.BitsPerSecond > 0 {
		takes = time.Duration(float64(n) * 8 / l.link.BitsPerSecond * 1e9)
	}
	due := l.wire.serialise(takes).Add(l.link.RTT / 2)
	if l.link.Jitter > 0 {
		due = due.Add(rand.N(l.link.Jitter))
	}
	if due.Before(l.last) {
		due = l.last
	}
	l.last = due
	return due
}

// get waits for the next segment and for its delivery time.
func (l *direction) get(done <-chan struct{}) ([]byte, error) {
	l.mu.Lock()
	idle := len(l.queue) == 0
	for len(l.queue) == 0 && l.err == nil {
		l.changed.Wait()
	}
	if len(l.queue) == 0 {
		defer l.mu.Unlock()
		return nil, l.err
	}
	p := l.queue[0]
	l.queue = l.queue[1:]
	l.bytes -= len(p.data)
	l.changed.Broadcast()
	l.mu.Unlock()
	slept := l.timer.sleepUntil(p.due, done)
	if l.late != nil && (idle || slept) { // otherwise it waited for the deliveries before it
		l.late.add(time.Since(p.due))
	}
	return p.data, nil
}

func (l *direction) end(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.changed.Broadcast()
	l.mu.Unlock()
}

// Lateness counts deliveries, and sums their delays beyond their due times. A delivery that waits
// for those before it does not count.
type Lateness struct {
	Count int64
	Sum   time.Duration
}

// Since returns the lateness of the deliveries after those of before.
func (l Lateness) Since(before Lateness) Lateness {
	return Lateness{l.Count - before.Count, l.Sum - before.Sum}
}

// Mean returns the mean delay of a delivery, 0 if there was none.
func (l Lateness) Mean() time.Duration { return l.Sum / time.Duration(max(1, l.Count)) }

// lateness is a Lateness that grows.
type lateness struct{ count, sum atomic.Int64 }

func (l *lateness) add(d time.Duration) {
	l.count.Add(1)
	l.sum.Add(int64(max(0, d)))
}

func (l *lateness) soFar() Lateness { return Lateness{l.count.Load(), time.Duration(l.sum.Load())} }

func (e *emulated) Write(p []byte) (int, error) {
	if err := e.out.put(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (e *emulated) Read(p []byte) (int, error) {
	e.readMu.Lock()
	defer e.readMu.Unlock()
	if len(e.rest) == 0 {
		data, err := e.in.get(e.done)
		if err != nil {
			return 0, err
		}
		e.rest = data
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

func (e *emulated) pumpOut() {
	for {
		data, err := e.out.get(e.done)
		if err != nil {
			return
		}
		if _, err := e.Conn.Write(data); err != nil {
			e.out.end(err)
			return
		}
	}
}

func (e *emulated) pumpIn() {
	b := make([]byte, segmentSize)
	for {
		n, err := e.Conn.Read(b)
		if n > 0 && e.in.put(b[:n]) != nil {
			return
		}
		if err != nil {
			e.in.end(err)
			return
		}
	}
}

// Close discards the bytes that have not been delivered.
func (e *emulated) Close() error {
	e.close.Do(func() { close(e.done) })
	e.out.end(net.ErrClosed)
	e.in.end(io.ErrClosedPipe)
	err := e.Conn.Close()
	e.out.timer.stop()
	e.in.timer.stop()
	e.sending.Wait()
	e.receiving.Wait()
	return err
}

// CloseWrite waits until all written bytes were delivered, and then half-closes the connection if
// it can.
func (e *emulated) CloseWrite() error {
	e.out.end(io.EOF)
	e.sending.Wait()
	return closeWrite(e.Conn)
}

func closeWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
