package collective

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a connection whose reads of more than n bytes in total wait until it is opened.
type gate struct {
	net.Conn
	n    int
	open chan struct{}
}

func (g *gate) Read(b []byte) (int, error) {
	if g.n == 0 {
		<-g.open
		return g.Conn.Read(b)
	}
	n, err := g.Conn.Read(b[:min(len(b), g.n)])
	g.n -= n
	return n, err
}

// link is a connection that accepts what is written at once. The bytes arrive in order, at a rate and
// after a latency.
type link struct {
	net.Conn
	rate    float64 // bytes per second
	latency time.Duration
	queue   chan queued
	once    sync.Once
	closed  chan struct{}
}

type queued struct {
	since time.Time
	data  []byte
}

func newLink(c net.Conn, rate float64, latency time.Duration) *link {
	l := &link{Conn: c, rate: rate, latency: latency, queue: make(chan queued, 1<<10), closed: make(chan struct{})}
	go l.deliver()
	return l
}

// deliver writes what is queued when it arrives.
func (l *link) deliver() {
	free := time.Now() // when the link has sent everything
	for {
		select {
		case q := <-l.queue:
			if free.Before(q.since) {
				free = q.since
			}
			free = free.Add(time.Duration(float64(len(q.data)) / l.rate * float64(time.Second)))
			waitUntil(free.Add(l.latency), l.closed)
			_, _ = l.Conn.Write(q.data) // Either end may be closed.
		case <-l.closed:
			return
		}
	}
}

// waitUntil returns at the time, or when closed is closed. It makes no timer that is due already: two
// goroutines of a bubble that receive from such timers' channels use one context of the race detector,
// which ends the process (runtime.(*timer).maybeRunChan).
func waitUntil(at time.Time, closed <-chan struct{}) {
	left := time.Until(at)
	if left <= 0 {
		return
	}
	select {
	case <-time.After(left):
	case <-closed:
	}
}

func (l *link) Write(b []byte) (int, error) {
	l.queue <- queued{time.Now(), bytes.Clone(b)}
	return len(b), nil
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

// The elements of the next exchange leave while this one waits for those of the other rank.
func TestExchangesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := pipes(2)
		behind := &gate{Conn: conns[0][1], open: make(chan struct{})} // rank 0 receives nothing yet
		left, right := newLink(behind, math.Inf(1), 0), newLink(conns[1][0], math.Inf(1), 0)
		zero, one := pairOf(t, left, right)
		defer closeAll([]*Group{zero, one})
		const parts, count = 3, 1 << 10
		bufs, waits := make([][]byte, parts), make([]func() error, parts)
		for i := range parts {
			bufs[i] = words(count)
			bufs[i][0] = byte(i)
			waits[i] = zero.Start(t.Context(), partOf(i, parts, count), bufs[i])
		}
		for i := range parts {
			other := words(count)
			other[0] = 10
			if err := one.Do(t.Context(), partOf(i, parts, count), other); err != nil || other[0] != byte(10+i) {
				t.Errorf("rank 1, part %d: %d (%v), want %d", i, other[0], err, 10+i)
			}
		}
		if bufs[0][0] != 0 {
			t.Errorf("rank 0 has %d before it has received anything", bufs[0][0])
		}
		close(behind.open)
		for i, wait := range waits {
			if err := wait(); err != nil || bufs[i][0] != byte(10+i) {
				t.Errorf("rank 0, part %d: %d (%v), want %d", i, bufs[i][0], err, 10+i)
			}
		}
	})
}

// The next exchange may be started before the failure of this one has been awaited.
func TestDisagreementEndsTheNextExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := groups(t, 2, Options{Link: far})
		defer closeAll(all)
		zero, one := all[0], all[1]
		const count = 1 << 10
		wait := zero.Start(t.Context(), partOf(0, 2, count), words(count))
		synctest.Wait() // until rank 1 knows the call
		first := one.Start(t.Context(), partOf(0, 3, count), words(count))
		second := one.Start(t.Context(), partOf(1, 3, count), words(count))
		for what, wait := range map[string]func() error{"rank 1, first": first, "rank 1, second": second, "rank 0": wait} {
			if err := wait(); err == nil || !strings.Contains(err.Error(), "ranks disagree in call 1") {
				t.Errorf("%s: %v, want that the ranks disagree", what, err)
			}
		}
	})
}

// partOf returns a part of an all-reduce.
func partOf(i, parts, count int) Call {
	return Call{Operation: AllReduce, Element: Uint8, Reduction: Sum, Count: count, Whole: parts * count, First: i * count}
}

// A call that is no exchange begins when the exchanges before it have ended.
func TestOtherCallsFollowExchanges(t *testing.T) {
	all := groups(t, 2, Options{Link: far})
	defer closeAll(all)
	c := Call{Operation: AllReduce, Element: Int64, Reduction: Sum, Count: 3 * pieceSize / 8}
	gather := Call{Operation: AllGather, Element: Int64, Count: 2}
	for rank, err := range everybody(all, func(g *Group) error {
		buf, both := words(c.Bytes()), words(16)
		view[int64](buf)[c.Count-1], view[int64](both)[g.Rank()] = 1, int64(7+g.Rank())
		waits := []func() error{g.Start(t.Context(), c, buf), g.Start(t.Context(), c, words(c.Bytes()))}
		last := make(chan error, 1)
		go func() { last <- g.Do(context.Background(), gather, both) }()
		err := errors.Join(waits[0](), waits[1](), <-last)
		if got := view[int64](buf)[c.Count-1]; got != 2 {
			t.Errorf("rank %d: a sum of %d", g.Rank(), got)
		}
		if got := view[int64](both); got[0] != 7 || got[1] != 8 {
			t.Errorf("rank %d gathered %v", g.Rank(), got)
		}
		return err
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Exchanges that have begun end when the other rank is lost, and hold nothing then.
func TestExchangesEndWithTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := pipes(2)
		held := &Buffers{}
		g, err := NewGroup(0, conns[0], Options{Link: far, Buffers: held})
		if err != nil {
			t.Fatal(err)
		}
		c := Call{Operation: AllReduce, Element: Uint8, Reduction: Sum, Count: 2 * pieceSize}
		wait := g.Start(t.Context(), c, words(c.Count))
		conns[1][0].Close()
		if err := wait(); err == nil || !strings.Contains(err.Error(), "rank 1 is lost") {
			t.Errorf("got %v, want that rank 1 is lost", err)
		}
		synctest.Wait()
		if n := held.Held(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
	})
}

// Ranks that make all-reduces of different sizes in parts disagree at the first part.
func TestPartsOfDifferentCallsDisagree(t *testing.T) {
	all := groups(t, 2, Options{Link: far})
	defer closeAll(all)
	for rank, err := range everybody(all, func(g *Group) error {
		c := partOf(0, 2+g.Rank(), 64)
		c.Site = "train.py:1" + string('0'+byte(g.Rank()))
		return g.Do(context.Background(), c, words(64))
	}) {
		for _, want := range []string{"128 uint8 at train.py:10", "192 uint8 at train.py:11"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: %v, want %q", rank, err, want)
			}
		}
	}
}

func TestPartsAreChecked(t *testing.T) {
	for name, c := range map[string]Call{
		"beyond the end": {Operation: AllReduce, Element: Uint8, Reduction: Sum, Count: 3, Whole: 8, First: 6},
		"negative":       {Operation: AllReduce, Element: Uint8, Reduction: Sum, Count: 3, Whole: 8, First: -1},
		"of no whole":    {Operation: AllReduce, Element: Uint8, Reduction: Sum, Count: 3, First: 1},
		"of a gather":    {Operation: AllGather, Element: Uint8, Count: 4, Whole: 8},
	} {
		if err := c.Check(2); err == nil || !strings.Contains(err.Error(), "no part of") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := partOf(1, 4, 10)
	c.Site = "train.py:3"
	if got, _, err := decodeCall(c.encode(Doubling)); err != nil || got != c {
		t.Errorf("decoded %+v (%v), want %+v", got, err, c)
	}
	if _, _, err := decodeCall(c.encode(Doubling)[:callSize+partSpan-1]); err == nil {
		t.Error("a truncated part is decoded")
	}
}

// The parts of an all-reduce of 16 MiB keep a link of 100 Mbit/s busy in both directions: they take
// no more than 1.02 times the bound s/w and one latency. One after the other they would take a
// latency each.
func TestPartsOfAnExchangeKeepTheLinkBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parts, count, rate, latency = 16, 1 << 20, 1e8 / 8, 10 * time.Millisecond
		conns := pipes(2)
		var all []*Group
		for rank, ends := range [][]net.Conn{{nil, newLink(conns[0][1], rate, latency)}, {newLink(conns[1][0], rate, latency), nil}} {
			g, err := NewGroup(rank, ends, Options{Link: far})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, g)
		}
		began := time.Now()
		for rank, err := range everybody(all, func(g *Group) error {
			var waits []func() error
			for i := range parts {
				waits = append(waits, g.Start(t.Context(), partOf(i, parts, count), words(count)))
			}
			var errs []error
			for _, wait := range waits {
				errs = append(errs, wait())
			}
			return errors.Join(errs...)
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		size := float64(parts * count)
		bound := time.Duration(size / rate * float64(time.Second))
		if took := time.Since(began); took > bound*102/100+latency {
			t.Errorf("it took %v, and the bound is %v", took, bound)
		}
		closeAll(all)
	})
}
