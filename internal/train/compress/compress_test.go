package compress

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/collective"
)

// reducers returns those of n ranks, connected by pipes.
func reducers(t *testing.T, n int, s Spec, link collective.Link) []*Reducer {
	t.Helper()
	conns := make([][]net.Conn, n)
	for i := range conns {
		conns[i] = make([]net.Conn, n)
		for j := range i {
			conns[i][j], conns[j][i] = net.Pipe()
		}
	}
	all := make([]*Reducer, n)
	for rank := range all {
		g, err := collective.NewGroup(rank, conns[rank], collective.Options{Link: link})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Close() })
		all[rank] = New(g, s, new(Memory))
	}
	return all
}

// do makes a call of all ranks.
func do(t *testing.T, all []*Reducer, r collective.Reduction, bufs [][]float32) {
	t.Helper()
	errs := make([]error, len(all))
	var ranks sync.WaitGroup
	for rank, reducer := range all {
		ranks.Go(func() {
			b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(bufs[rank]))), 4*len(bufs[rank]))
			c := collective.Call{Operation: collective.AllReduce, Element: collective.Float32, Reduction: r, Count: len(bufs[rank])}
			errs[rank] = reducer.Do(context.Background(), c, b, 1)
		})
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for rank := range bufs {
		if !slices.Equal(bufs[rank], bufs[0]) {
			t.Fatalf("ranks 0 and %d have different results", rank)
		}
	}
}

// gradients returns random elements for each rank, and their exact sum.
func gradients(n, count int, seed uint64) (bufs [][]float32, sum []float64) {
	r := rand.New(rand.NewPCG(seed, 0))
	sum = make([]float64, count)
	for range n {
		b := make([]float32, count)
		for i := range b {
			b[i] = float32(r.NormFloat64())
			sum[i] += float64(b[i])
		}
		bufs = append(bufs, b)
	}
	return bufs, sum
}

// worst returns the greatest difference from what is wanted.
func worst(got []float32, want []float64, scale float64) (w float64) {
	for i := range want {
		w = max(w, math.Abs(float64(got[i])-want[i]*scale))
	}
	return w
}

func TestHalfSumsAndAverages(t *testing.T) {
	const n, count = 3, 10_000
	for reduction, scale := range map[collective.Reduction]float64{collective.Sum: 1, collective.Average: 1.0 / n} {
		all := reducers(t, n, Spec{Method: Half}, collective.Link{})
		bufs, sum := gradients(n, count, 1)
		do(t, all, reduction, bufs)
		// Some additions of values below 8, each rounded to 11 bits.
		if w := worst(bufs[0], sum, scale); w > 0.03*scale || w == 0 {
			t.Errorf("%s: the greatest error is %v", reduction, w)
		}
		if s := all[0].Stats(); s.Calls != 1 || s.Bytes != 4*count || s.Sent != 2*count {
			t.Errorf("got %+v", s)
		}
	}
}

// What a call has not sent is added to the next one: the sum of all results is that of all
// gradients but for what is left at the end.
func TestTopKFeedsItsErrorBack(t *testing.T) {
	const n, count, steps = 3, 10_000, 60
	all := reducers(t, n, Spec{Method: TopK, Fraction: 0.1}, collective.Link{})
	got, want := make([]float32, count), make([]float64, count)
	for step := range steps {
		bufs, sum := gradients(n, count, uint64(step))
		do(t, all, collective.Sum, bufs)
		zeros := 0
		for i, v := range bufs[0] {
			got[i], want[i] = got[i]+v, want[i]+sum[i]
			if v == 0 {
				zeros++
			}
		}
		if zeros < count*7/10-1 {
			t.Fatalf("step %d: %d of %d elements are zero, want 70 %% at least", step, zeros, count)
		}
	}
	for _, r := range all {
		for i, v := range r.left.of(residualKey{1, count}) {
			got[i] += v
		}
	}
	if w := worst(got, want, 1); w > 1e-3 {
		t.Errorf("the greatest error of the sum is %v: something is lost", w)
	}
	if s := all[1].Stats(); s.Sent != steps*count/10*entrySize {
		t.Errorf("got %+v", s)
	}
}

func TestGreatestElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float32Range(-4, 4), 1, 200).Draw(t, "values")
		k := rapid.IntRange(1, len(values)).Draw(t, "k")
		to := make([]byte, k*entrySize)
		putGreatest(to, values)
		sent := make([]float32, len(values))
		if err := addEntries(sent, to); err != nil {
			t.Fatal(err)
		}
		left := slices.Clone(values)
		clearSent(left, to)
		var least, greatest uint32 = math.MaxUint32, 0
		last := -1
		for ; len(to) > 0; to = to[entrySize:] {
			i := int(to[0]) | int(to[1])<<8
			if i <= last {
				t.Fatalf("element %d follows %d", i, last)
			}
			last, least = i, min(least, magnitude(values[i]))
		}
		for i, v := range left {
			if greatest = max(greatest, magnitude(v)); sent[i]+v != values[i] {
				t.Fatalf("element %d: %v was sent and %v is left of %v", i, sent[i], v, values[i])
			}
		}
		if least < greatest {
			t.Fatalf("%v was left and %v was sent", math.Float32frombits(greatest), math.Float32frombits(least))
		}
	})
}

func TestElementsOutOfTheBufferAreRefused(t *testing.T) {
	entries := []byte{2, 0, 0, 0, 0, 0, 0, 0}
	if err := addEntries(make([]float32, 2), entries); err == nil {
		t.Error("element 2 of 2 was added")
	}
}

// Residuals of many buffers take bounded memory.
func TestResidualsAreBounded(t *testing.T) {
	var held Memory
	r := residuals{held: &held, order: []residualKey{{1, maxResidual - 10}}, all: map[residualKey][]float32{{1, maxResidual - 10}: nil}}
	held.residuals.Store(maxResidual - 10)
	r.of(residualKey{2, 11})
	if _, ok := r.all[residualKey{1, maxResidual - 10}]; ok || held.residuals.Load() != 11 {
		t.Errorf("%d elements are kept of %d buffers, want the last ones only", held.residuals.Load(), len(r.all))
	}
	if r.of(residualKey{3, maxResidual + 1}) != nil {
		t.Error("a residual is larger than all may be")
	}
	other := residuals{held: &held}
	if other.of(residualKey{1, maxResidual - 10}) != nil || other.of(residualKey{1, 5}) == nil {
		t.Error("the residuals of two groups are not bounded together")
	}
}

// A wideGroup has many ranks that send zeros. It records the size of its calls.
type wideGroup struct {
	Group
	size    int
	largest int
	calls   int
}

func (g *wideGroup) Size() int { return g.size }

func (g *wideGroup) Do(_ context.Context, _ collective.Call, buf []byte) error {
	g.largest, g.calls = max(g.largest, len(buf)), g.calls+1
	clear(buf)
	return nil
}

func (g *wideGroup) Rank() int { return 0 }

// The temporary buffer of a sum does not grow with the number of nodes, and those of all sums of a
// job have one bound.
func TestBuffersOfSumsAreBounded(t *testing.T) {
	const count = 1 << 14
	c := collective.Call{Operation: collective.AllReduce, Element: collective.Float32, Reduction: collective.Sum, Count: count}
	for name, spec := range map[string]Spec{"top-k": {Method: TopK, Fraction: 0.5}, "half": {Method: Half}} {
		t.Run(name, func(t *testing.T) {
			g, held := &wideGroup{size: 4096}, &Memory{}
			if err := New(g, spec, held).Do(t.Context(), c, make([]byte, 4*count), 1); err != nil {
				t.Fatal(err)
			}
			if g.largest > pieceBytes || held.Buffers.Held() != 0 {
				t.Errorf("%d calls of %d bytes at most, %d bytes are still held", g.calls, g.largest, held.Buffers.Held())
			}
			held.Buffers.Limit = 16 << 10
			if err := New(g, spec, held).Do(t.Context(), c, make([]byte, 4*count), 1); outboard.KindOf(err) != outboard.Exhausted {
				t.Errorf("beyond the bound: %v", err)
			}
		})
	}
}

// A sum whose elements are sent in pieces is the same as in one.
func TestPieces(t *testing.T) {
	const n, count = 3, 10_000
	for name, spec := range map[string]Spec{"top-k": {Method: TopK, Fraction: 0.1}, "half": {Method: Half}} {
		t.Run(name, func(t *testing.T) {
			var results [][]float32
			for _, piece := range []int{pieceBytes, 1000} {
				all := reducers(t, n, spec, collective.Link{})
				for _, r := range all {
					r.piece = piece
				}
				bufs, _ := gradients(n, count, 1)
				do(t, all, collective.Average, bufs)
				results = append(results, bufs[0])
			}
			for i, want := range results[0] {
				if got := results[1][i]; math.Abs(float64(got-want)) > 1e-6*math.Abs(float64(want)) {
					t.Fatalf("element %d is %v in pieces, want %v", i, got, want)
				}
			}
		})
	}
}

func TestLossIsCounted(t *testing.T) {
	all := reducers(t, 2, Spec{Method: Loss, Fraction: 0.1}, collective.Link{Latency: -time.Hour, Bandwidth: 1e18})
	bufs, _ := gradients(2, 100*4096*2, 1)
	do(t, all, collective.Average, bufs)
	if s := all[0].Stats(); s.Dropped != 10 || s.Offered != 100 {
		t.Errorf("got %+v, want 10 of 100 parts", s)
	}
}

// Small calls and those of other types are made as they are.
func TestOtherCallsAreExact(t *testing.T) {
	for _, method := range []Method{Half, TopK, Loss} {
		all := reducers(t, 2, Spec{Method: method, Fraction: 0.1}, collective.Link{})
		bufs := [][]float32{{1.0001, 2}, {3, 4}}
		do(t, all, collective.Sum, bufs)
		if !slices.Equal(bufs[0], []float32{1.0001 + 3, 6}) {
			t.Errorf("method %d: %v", method, bufs[0])
		}
		if s := all[0].Stats(); s.Calls != 0 {
			t.Errorf("method %d: %+v", method, s)
		}
	}
}

func TestSpecs(t *testing.T) {
	for text, want := range map[string]Spec{
		"": {}, "plain": {}, "fp16": {Method: Half}, "topk=0.01": {Method: TopK, Fraction: 0.01}, "store": {Method: Store},
		"loss=0.05": {Method: Loss, Fraction: 0.05}, "loss=0.05,datagrams": {Method: Loss, Fraction: 0.05, Datagrams: true},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%q: %v (%v), want %v", text, got, err, want)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q", text, got)
		}
	}
	for _, text := range []string{"fp17", "topk", "topk=0", "topk=0.9", "topk=NaN", "loss=0.6", "loss=-1", "loss=x", "fp16=1", "plain=2", "topk=0.1,datagrams", ",datagrams", "loss=0.1,datagram"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	if !bytes.Contains([]byte(Spec{Method: Loss, Fraction: 0.05}.Explain()), []byte("at most 5 %")) {
		t.Error(Spec{Method: Loss, Fraction: 0.05}.Explain())
	}
}

// FuzzEntries: whatever elements a rank sends, none is added out of the buffer.
func FuzzEntries(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 128, 63}, 2)
	f.Add([]byte{255, 255, 255, 255, 0, 0, 128, 63}, 2)
	f.Fuzz(func(t *testing.T, sent []byte, size int) {
		entries := sent[:len(sent)/entrySize*entrySize] // topK's buffers are whole elements
		all := make([]float32, 64)
		size = min(max(size, 0), 32)
		err := addEntries(all[:size:size], entries)
		for i := size; i < len(all); i++ {
			if all[i] != 0 {
				t.Errorf("element %d of %d was changed (%v)", i, size, err)
			}
		}
	})
}

// A rank changes the values in its memory after they were counted: there are more of the greatest than
// there is room for, or fewer.
func TestValuesThatChange(t *testing.T) {
	values := []float32{9, 9, 9, 9}
	to := make([]byte, 2*entrySize)
	putFrom(to, values, magnitude(1), 1)
	if err := addEntries(values, to); err != nil || values[0] != 18 || values[1] != 18 || values[2] != 9 {
		t.Errorf("got %v, %v", values, err)
	}
	clear(to)
	putFrom(to, make([]float32, 4), magnitude(1), 1)
	if err := addEntries(values, to); err != nil || values[0] != 18 {
		t.Errorf("then %v, %v", values, err)
	}
}
