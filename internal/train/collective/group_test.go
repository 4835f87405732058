package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// pipes returns the connections of n ranks.
func pipes(n int) [][]net.Conn {
	conns := make([][]net.Conn, n)
	for i := range conns {
		conns[i] = make([]net.Conn, n)
	}
	for i := range n {
		for j := range i {
			conns[i][j], conns[j][i] = net.Pipe()
		}
	}
	return conns
}

type fataler interface{ Fatal(...any) }

// pairOf returns the ends of a group of two ranks, whose connection has the ends left and right.
func pairOf(t fataler, left, right net.Conn) (zero, one *Group) {
	zero, err := NewGroup(0, []net.Conn{nil, left}, Options{Link: far})
	if err != nil {
		t.Fatal(err)
	}
	if one, err = NewGroup(1, []net.Conn{right, nil}, Options{Link: far}); err != nil {
		t.Fatal(err)
	}
	return zero, one
}

// groups returns the ends of a group of n ranks.
func groups(t fataler, n int, o Options) []*Group {
	all := make([]*Group, n)
	for rank, conns := range pipes(n) {
		g, err := NewGroup(rank, conns, o)
		if err != nil {
			t.Fatal(err)
		}
		all[rank] = g
	}
	return all
}

func closeAll(all []*Group) {
	for _, g := range all {
		g.Close()
	}
}

// everybody runs f for each rank and returns their errors.
func everybody(all []*Group, f func(g *Group) error) []error {
	errs := make([]error, len(all))
	var ranks sync.WaitGroup
	for rank, g := range all {
		ranks.Go(func() { errs[rank] = f(g) })
	}
	ranks.Wait()
	return errs
}

// Links for which Choose takes each of the algorithms.
var (
	slow = Link{Latency: 1, Bandwidth: 1}     // few bytes: halving, or the ring
	far  = Link{Latency: 1e9, Bandwidth: 1e9} // few messages: doubling
)

func TestCallsComputeWhatOneProcessWould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "ranks")
		all := groups(t, n, Options{Link: rapid.SampledFrom([]Link{slow, far}).Draw(t, "link")})
		defer closeAll(all)
		for range rapid.IntRange(1, 4).Draw(t, "calls") {
			c := Call{
				Operation: rapid.SampledFrom([]Operation{AllReduce, ReduceScatter, AllGather, Broadcast, AllToAll, Barrier}).Draw(t, "operation"),
				Element:   rapid.SampledFrom([]Element{Int64, Int32, Int16, Int8, Uint8}).Draw(t, "element"),
				Reduction: rapid.SampledFrom([]Reduction{Sum, Average, Min, Max}).Draw(t, "reduction"),
				Root:      rapid.IntRange(0, n-1).Draw(t, "root"), Ordered: rapid.Bool().Draw(t, "ordered"),
				Count: n * rapid.IntRange(0, 40).Draw(t, "elements"),
			}
			if c.Operation == Barrier {
				c.Count = 0
			}
			check(t, all, c)
		}
	})
}

func TestLocalComputesWhatRanksWould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "ranks")
		c := Call{
			Operation: rapid.SampledFrom([]Operation{AllReduce, ReduceScatter, AllGather, Broadcast, AllToAll}).Draw(t, "operation"),
			Element:   rapid.SampledFrom([]Element{Int64, Int32, Int16, Int8, Uint8, Float32, BFloat16}).Draw(t, "element"),
			Reduction: rapid.SampledFrom([]Reduction{Sum, Average, Min, Max}).Draw(t, "reduction"),
			Root:      rapid.IntRange(0, n-1).Draw(t, "root"), Count: n * rapid.IntRange(0, 30_000).Draw(t, "elements"),
		}
		bufs, before := random(n, c)
		if err := Local(c, bufs); err != nil {
			t.Fatal(err)
		}
		compare(t, c, bufs, before)
	})
}

// random returns buffers of random bytes for all ranks, and copies of them.
func random(n int, c Call) (bufs, before [][]byte) {
	bufs, before = make([][]byte, n), make([][]byte, n)
	r := rand.New(rand.NewPCG(uint64(c.Count), uint64(c.Element)))
	for rank := range bufs {
		bufs[rank] = words(c.Count * c.Element.Size())
		for i := range bufs[rank] {
			bufs[rank][i] = byte(r.Uint32())
		}
		before[rank] = words(len(bufs[rank]))
		copy(before[rank], bufs[rank])
	}
	return bufs, before
}

// compare compares what each rank has after the call.
func compare(t *rapid.T, c Call, bufs, before [][]byte) {
	for rank, got := range bufs {
		want, from, to := expected(c, len(bufs), rank, before)
		if !bytes.Equal(got[from:to], want[from:to]) {
			t.Fatalf("%s of %d ranks: rank %d has\n%x, want\n%x", c, len(bufs), rank, got[from:to], want[from:to])
		}
	}
}

// check makes the call with random elements and compares what each rank has then.
func check(t *rapid.T, all []*Group, c Call) {
	bufs, before := random(len(all), c)
	for rank, err := range everybody(all, func(g *Group) error { return g.Do(context.Background(), c, bufs[g.Rank()]) }) {
		if err != nil {
			t.Fatalf("%s: rank %d: %v", c, rank, err)
		}
	}
	compare(t, c, bufs, before)
}

func words(n int) []byte { return (&Group{}).aside(n) }

// expected computes the bytes from to to-1 of a rank after the call, in one process.
func expected(c Call, n, rank int, before [][]byte) (want []byte, from, to int) {
	size, whole := c.Element.Size(), len(before[0])
	span := func(rank int) (int, int) { p := part(rank, n, c.Count); return p.From * size, p.To * size }
	want, from, to = bytes.Clone(before[rank]), 0, whole
	switch c.Operation {
	case AllReduce, ReduceScatter:
		want = words(whole)
		copy(want, before[0])
		for _, b := range before[1:] {
			combine(want, b, c.Element, c.Reduction)
		}
		if c.Reduction == Average && n > 1 {
			divide(want, c.Element, n)
		}
		if c.Operation == ReduceScatter {
			from, to = span(rank)
		}
	case AllGather:
		for other := range n {
			f, e := span(other)
			copy(want[f:e], before[other][f:e])
		}
	case Broadcast:
		copy(want, before[c.Root])
	case AllToAll:
		f, e := span(rank)
		for other := range n {
			of, oe := span(other)
			copy(want[of:oe], before[other][f:e])
		}
	case Barrier:
	}
	return want, from, to
}

// All ranks must have the same bits, or training diverges; in order, also whatever the algorithm
// and the size.
func TestSumsOfFloatsAreTheSameInAllRanks(t *testing.T) {
	const n, count = 5, 1000
	for _, e := range []Element{Float64, Float32, Float16, BFloat16} {
		var inOrder []byte
		for _, o := range []struct {
			link    Link
			ordered bool
		}{{slow, false}, {far, false}, {slow, true}, {far, true}} {
			all := groups(t, n, Options{Link: o.link})
			bufs := make([][]byte, n)
			for rank := range bufs {
				r := rand.New(rand.NewPCG(uint64(rank), 0))
				bufs[rank] = words(count * e.Size())
				for i := range count {
					putFloat(bufs[rank], i, e, r.Float32()-0.5)
				}
			}
			c := Call{Operation: AllReduce, Element: e, Reduction: Sum, Count: count, Ordered: o.ordered}
			if err := errors.Join(everybody(all, func(g *Group) error { return g.Do(context.Background(), c, bufs[g.Rank()]) })...); err != nil {
				t.Fatal(err)
			}
			closeAll(all)
			for rank := range bufs {
				if !bytes.Equal(bufs[rank], bufs[0]) {
					t.Errorf("%s, ordered %v: ranks 0 and %d have different sums", e, o.ordered, rank)
				}
			}
			if o.ordered && inOrder != nil && !bytes.Equal(inOrder, bufs[0]) {
				t.Errorf("%s: the sum in order depends on the link", e)
			}
			if o.ordered {
				inOrder = bufs[0]
			}
		}
	}
}

func putFloat(b []byte, i int, e Element, f float32) {
	switch e {
	case Float64:
		view[float64](b)[i] = float64(f)
	case Float32:
		view[float32](b)[i] = f
	case Float16:
		view[uint16](b)[i] = toFloat16(f)
	case BFloat16:
		view[uint16](b)[i] = toBFloat16(f)
	default: // integers have no fractions
	}
}

func TestRanksThatDisagreeAreNamed(t *testing.T) {
	all := groups(t, 3, Options{})
	defer closeAll(all)
	errs := everybody(all, func(g *Group) error {
		c := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 6, Site: "train.py:10"}
		if g.Rank() == 1 {
			c.Count, c.Site = 9, "train.py:12"
		}
		return g.Do(context.Background(), c, words(4*c.Count))
	})
	var mismatch *MismatchError
	for rank, err := range errs {
		if err == nil {
			t.Errorf("rank %d got no error", rank)
		}
		errors.As(err, &mismatch)
		if !strings.Contains(fmt.Sprint(err), "train.py:10") || !strings.Contains(fmt.Sprint(err), "train.py:12") {
			t.Errorf("rank %d: %v: want both call sites", rank, err)
		}
	}
	if mismatch == nil || mismatch.Number != 1 {
		t.Errorf("got %v, want a *MismatchError of call 1", errs)
	}
}

// Broadcasts from different roots only receive, all of them.
func TestRanksThatOnlyWaitForEachOtherAreNamed(t *testing.T) {
	all := groups(t, 2, Options{})
	defer closeAll(all)
	errs := everybody(all, func(g *Group) error {
		c := Call{Operation: Broadcast, Element: Uint8, Count: 4, Root: 1 - g.Rank()}
		return g.Do(context.Background(), c, words(4))
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "ranks disagree in call 1") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A stream is an end of a connection that passes the reason of its end on, as the fabric's.
type stream struct {
	net.Conn
	other  *stream
	reason atomic.Pointer[error] // of the other end
}

func streams() (a, b *stream) {
	a, b = new(stream), new(stream)
	a.Conn, b.Conn = net.Pipe()
	a.other, b.other = b, a
	return a, b
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	return n, s.explain(err)
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	return n, s.explain(err)
}

func (s *stream) explain(err error) error {
	if reason := s.reason.Load(); err != nil && reason != nil {
		return *reason
	}
	return err
}

// SetWriteDeadline ends a write that is stuck at once.
func (s *stream) SetWriteDeadline(time.Time) error { return s.Conn.SetWriteDeadline(time.Now()) }

func (s *stream) Reset(why error) {
	s.other.reason.Store(&why)
	_ = s.Close()
}

// A rank whose elements nobody takes can't send its abort behind them.
func TestReasonOfAnEndPassesElements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := streams()
		zero, one := pairOf(t, left, right)
		defer closeAll([]*Group{zero, one})
		sum := Call{Operation: AllReduce, Element: Uint8, Reduction: Sum, Count: 1 << 20}
		wait := one.Start(t.Context(), sum, words(sum.Count))
		synctest.Wait() // until rank 1 waits for rank 0 to take its elements
		one.Abort(errors.New("the boat is full"))
		if err := wait(); err == nil {
			t.Error("a call of a group that has ended succeeded")
		}
		synctest.Wait()
		if err := zero.Do(t.Context(), sum, words(sum.Count)); err == nil || !strings.Contains(err.Error(), "the boat is full") {
			t.Errorf("rank 0 ends with %v", err)
		}
	})
}

func TestAllRanksLearnThatOneIsLost(t *testing.T) {
	conns := pipes(4)
	var all []*Group
	for rank := range 3 {
		g, err := NewGroup(rank, conns[rank], Options{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	defer closeAll(all)
	// Rank 3 dies in the middle of a message.
	go func() {
		conns[3][2].Write(head{kindData, 100, 1}.append(nil))
		for _, c := range conns[3][:3] {
			c.Close()
		}
	}()
	for rank, err := range everybody(all, func(g *Group) error {
		return g.Do(context.Background(), Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 1 << 20}, words(4<<20))
	}) {
		if err == nil || !strings.Contains(err.Error(), "rank 3 is lost") {
			t.Errorf("rank %d: %v, want that rank 3 is lost", rank, err)
		}
	}
}

// signal is a connection that tells of its first write.
type signal struct {
	net.Conn
	once  sync.Once
	wrote chan struct{}
}

func (s *signal) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.wrote) })
	return s.Conn.Write(b)
}

func TestARankThatGivesUpEndsTheGroup(t *testing.T) {
	conns := pipes(2)
	began := &signal{Conn: conns[1][0], wrote: make(chan struct{})}
	conns[1][0] = began
	var all []*Group
	for rank := range conns {
		g, err := NewGroup(rank, conns[rank], Options{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	defer closeAll(all)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-began.wrote
		cancel()
	}()
	c := Call{Operation: Barrier}
	if err := all[1].Do(ctx, c, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("rank 1: %v, want its context's error", err)
	}
	// Rank 1 had called, which is all that the first barrier needs; in the second it is missing.
	err := errors.Join(all[0].Do(context.Background(), c, nil), all[0].Do(context.Background(), c, nil))
	if err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("rank 0: %v, want that rank 1 gave up", err)
	}
}

func TestBuffersThatDoNotFitAreRefused(t *testing.T) {
	g := groups(t, 1, Options{})[0]
	for want, c := range map[string]Call{
		"want 16":              {Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 4},
		"unknown operation":    {Operation: 9},
		"unknown type":         {Operation: AllGather, Element: 77},
		"unknown reduction":    {Operation: AllReduce, Element: Float32, Count: 2},
		"from rank 1 of 1":     {Operation: Broadcast, Element: Uint8, Count: 8, Root: 1},
		"-1 elements":          {Operation: AllGather, Element: Uint8, Count: -1},
		"barrier has no eleme": {Operation: Barrier, Count: 8},
	} {
		if err := g.Do(context.Background(), c, words(8)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", c, err, want)
		}
	}
	c := Call{Operation: AllGather, Element: Int64, Count: 1}
	if err := g.Do(context.Background(), c, words(16)[1:9]); err == nil || !strings.Contains(err.Error(), "aligned") {
		t.Errorf("a buffer that is not aligned: %v", err)
	}
}

// A peer may write anything: the call ends with an error or is still waiting; nothing panics, and
// what is written in the buffer is no more than it holds.
func FuzzHostilePeer(f *testing.F) {
	call := (&Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 4}).encode(Doubling)
	good := append(head{kindCall, uint32(len(call)), 1}.append(nil), call...)
	f.Add(good)
	f.Add(append(bytes.Clone(good), append(head{kindData, 16, 1}.append(nil), make([]byte, 16)...)...))
	f.Add(append(head{kindAbort, 3, 0}.append(nil), "bad"...))
	f.Add(head{kindData, maxData, 1}.append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		conns := pipes(2)
		g, err := NewGroup(0, conns[0], Options{Link: far})
		if err != nil {
			t.Fatal(err)
		}
		peer := conns[1][0]
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		go func() {
			peer.Write(data)
			peer.Close()
		}()
		c := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 4}
		if err := g.Do(context.Background(), c, words(16)); err == nil {
			g.Close()
		}
		<-g.ended.Done()
	})
}
