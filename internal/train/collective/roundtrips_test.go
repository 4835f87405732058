package collective

import (
	"bytes"
	"errors"
	"math"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A cable has a rate in bytes per second, a latency, and a queue without an end.
type cable struct {
	rate    float64
	latency time.Duration

	mu   sync.Mutex
	free time.Time // when it has sent everything
}

// arrival returns when bytes that are sent now arrive.
func (w *cable) arrival(size int) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.free.Before(now) {
		w.free = now
	}
	w.free = w.free.Add(time.Duration(float64(size) / w.rate * float64(time.Second)))
	return w.free.Add(w.latency)
}

// cablePath is a path over a cable.
type cablePath struct {
	lossyPath
	cable *cable
	queue chan queued
}

func (p *cablePath) Send(b []byte) error {
	if at := p.cable.arrival(wireSize); !p.lose() {
		p.queue <- queued{at, bytes.Clone(b)}
	}
	return nil
}

// cableStream is a stream over a cable.
type cableStream struct {
	net.Conn
	cable  *cable
	queue  chan queued
	closed chan struct{}
	once   sync.Once
}

func (s *cableStream) Write(b []byte) (int, error) {
	s.queue <- queued{s.cable.arrival(len(b)), bytes.Clone(b)}
	return len(b), nil
}

func (s *cableStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// carry delivers what is queued when it arrives, until closed is closed.
func carry(queue <-chan queued, closed <-chan struct{}, deliver func([]byte)) {
	for {
		select {
		case q := <-queue:
			waitUntil(q.since, closed)
			deliver(q.data)
		case <-closed:
			return
		}
	}
}

// delayedGroups returns the ends of a group of two ranks that have measured a link, whose real rate may
// be another one. Datagrams and the streams beside them have one queue.
func delayedGroups(t *testing.T, l Link, rate float64, lose func(rank int) func() bool) []*Group {
	t.Helper()
	all, paths, conns := make([]*Group, 2), lossyPaths(2, lose), pipes(2)
	for rank := range all {
		other, w := 1-rank, &cable{rate: rate, latency: l.Latency}
		d := paths[rank][other]
		before, ok := d.Path.(*lossyPath)
		if !ok {
			t.Fatal("no path")
		}
		p := &cablePath{lossyPath: lossyPath{lose: before.lose, out: before.out, in: before.in, closed: before.closed}, cable: w, queue: make(chan queued, 1<<14)}
		go carry(p.queue, p.closed, func(b []byte) { p.out <- b })
		s := &cableStream{Conn: d.Stream, cable: w, queue: make(chan queued, 1<<10), closed: make(chan struct{})}
		go carry(s.queue, s.closed, func(b []byte) { _, _ = s.Conn.Write(b) }) // Either end may be closed.
		d.Path, d.Stream = p, s
		ends := make([]net.Conn, 2)
		ends[other] = newLink(conns[rank][other], math.Inf(1), l.Latency)
		var err error
		if all[rank], err = NewGroup(rank, ends, Options{Link: l, Datagrams: paths[rank]}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A sum of two ranks by datagrams takes the time of its bytes and one and a half round trips: for the
// message that begins the call, for the last chunk, and for the message that ends the call. Chunks that
// are lost are repeated while others are sent; only the last ones, those of a round trip, cost more.
func TestRoundTripsOfDatagrams(t *testing.T) {
	link := Link{Latency: 20 * time.Millisecond, Bandwidth: 12.5e6}
	for name, c := range map[string]struct {
		share      float64
		roundTrips float64
	}{
		"no loss":     {0, 1.6},
		"a hundredth": {0.01, 2.6},
		"a twentieth": {0.05, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := delayedGroups(t, link, math.Inf(1), losing(c.share))
				defer closeAll(all)
				const chunks = 800 // of each step
				call := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 2 * chunks * chunkSize / 4, Loss: 10}
				const calls = 8
				began := time.Now()
				for range calls {
					for _, g := range all { // The rates grow: this is about round trips.
						for _, p := range g.paths {
							if p != nil {
								p.rate = link.Bandwidth
							}
						}
					}
					err := errors.Join(everybody(all, func(g *Group) error { return g.Do(t.Context(), call, words(4*call.Count)) })...)
					if err != nil {
						t.Fatal(err)
					}
				}
				took := time.Since(began) / calls
				// Chunks that are lost are sent twice.
				bytes := 2 * chunks * wireSize * (1 + c.share)
				sending := time.Duration(bytes / link.Bandwidth * float64(time.Second))
				trips := float64(took-sending) / float64(2*link.Latency)
				t.Logf("%v, of which %v for the bytes: %.2f round trips", took, sending, trips)
				if trips > c.roundTrips {
					t.Errorf("%.2f round trips, want %.2f", trips, c.roundTrips)
				}
			})
		})
	}
}

// The rate of datagrams becomes that of the link: datagrams that wait in a queue make each repetition of a
// lost one take longer.
func TestRateFollowsTheQueue(t *testing.T) {
	const real = 12.5e6
	for name, c := range map[string]struct{ measured, least, most float64 }{
		"measured too slow": {real / 2, 0.85 * real, 1.15 * real},
		"measured right":    {real, 0.85 * real, 1.15 * real},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := delayedGroups(t, Link{Latency: 5 * time.Millisecond, Bandwidth: c.measured}, real, never)
				defer closeAll(all)
				call := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 2 * 800 * chunkSize / 4, Loss: 10}
				for range 12 {
					if err := errors.Join(everybody(all, func(g *Group) error { return g.Do(t.Context(), call, words(4*call.Count)) })...); err != nil {
						t.Fatal(err)
					}
				}
				if got := all[0].paths[1].rate; got < c.least || got > c.most {
					t.Errorf("%.2f MB/s after 12 calls, want %.2f to %.2f", got/1e6, c.least/1e6, c.most/1e6)
				}
			})
		})
	}
}
