package collective

import (
	"errors"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// delayedPath is a path whose datagrams arrive after a latency.
type delayedPath struct {
	lossyPath
	latency time.Duration
	queue   chan queued
}

func (p *delayedPath) Send(b []byte) error {
	if !p.lose() {
		p.queue <- queued{time.Now(), append([]byte(nil), b...)}
	}
	return nil
}

// carry delivers datagrams in order.
func (p *delayedPath) carry() {
	for {
		select {
		case q := <-p.queue:
			select {
			case <-time.After(time.Until(q.since.Add(p.latency))):
			case <-p.closed:
			}
			p.out <- q.data
		case <-p.closed:
			return
		}
	}
}

// delayedGroups returns the ends of a group of two ranks on a link, whose streams have the same latency
// as their datagrams.
func delayedGroups(t *testing.T, l Link, lose func(rank int) func() bool) []*Group {
	t.Helper()
	all, paths, conns := make([]*Group, 2), lossyPaths(2, lose), pipes(2)
	for rank := range all {
		other := 1 - rank
		d := paths[rank][other]
		p := &delayedPath{lossyPath: lossyPath{lose: lose(rank)}, latency: l.Latency, queue: make(chan queued, 1<<14)}
		if before, ok := d.Path.(*lossyPath); ok {
			p.out, p.in, p.closed = before.out, before.in, before.closed
		}
		go p.carry()
		d.Path, d.Stream = p, newLink(d.Stream, math.Inf(1), l.Latency)
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
		"no loss":     {0, 1.5},
		"a hundredth": {0.01, 2.2},
		"a twentieth": {0.05, 3.2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := delayedGroups(t, link, losing(c.share))
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
				if trips > c.roundTrips+0.15 {
					t.Errorf("%.2f round trips, want %.2f", trips, c.roundTrips)
				}
			})
		})
	}
}
