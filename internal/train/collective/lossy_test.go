package collective

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// lossySum sums 64 parts and 10 elements over three ranks, rank r having r+1 times the number of the
// part, and returns the ranks' buffers.
func lossySum(t *testing.T, link Link, loss int) (all []*Group, bufs [][]byte, count int) {
	t.Helper()
	const n, perPart = 3, partSize / 4
	count = n * (64*perPart + 10)
	all = groups(t, n, Options{Link: link})
	t.Cleanup(func() { closeAll(all) })
	for rank := range n {
		b := words(4 * count)
		for i := range view[float32](b) {
			view[float32](b)[i] = float32((rank + 1) * (1 + i%(count/n)/perPart))
		}
		bufs = append(bufs, b)
	}
	c := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: count, Loss: loss}
	if err := errors.Join(everybody(all, func(g *Group) error { return g.Do(context.Background(), c, bufs[g.Rank()]) })...); err != nil {
		t.Fatal(err)
	}
	for rank := range bufs {
		if !bytes.Equal(bufs[rank], bufs[0]) {
			t.Errorf("ranks 0 and %d have different sums", rank)
		}
	}
	return all, bufs, count
}

// A link without congestion loses nothing.
func TestLossOnlyUnderCongestion(t *testing.T) {
	all, bufs, _ := lossySum(t, Link{Latency: time.Hour, Bandwidth: 1}, 500)
	for i, v := range view[float32](bufs[0]) {
		if want := float32(6 * (1 + i%(len(bufs[0])/12)/(partSize/4))); v != want {
			t.Fatalf("element %d is %v, want %v", i, v, want)
		}
	}
	for _, g := range all {
		if l := g.Lost(); l.Dropped != 0 || l.Offered != 2*65 {
			t.Errorf("rank %d dropped %d of %d parts, want 0 of 130", g.Rank(), l.Dropped, l.Offered)
		}
	}
}

// Under congestion the least important parts are dropped, up to the bound, and counted.
func TestLossIsBounded(t *testing.T) {
	all, bufs, count := lossySum(t, Link{Latency: -time.Hour, Bandwidth: 1e18}, 100)
	for _, g := range all {
		// 6 of 65 parts are the tenth that may be lost, in each of two steps.
		if l := g.Lost(); l.Dropped != 12 || l.Offered != 130 {
			t.Errorf("rank %d dropped %d of %d parts, want 12 of 130", g.Rank(), l.Dropped, l.Offered)
		}
	}
	for i, v := range view[float32](bufs[0]) {
		within := i % (count / 3)
		number := float32(1 + within/(partSize/4))
		// The last, short part has few elements, so its sum of squares is small as well.
		if short := within >= 64*partSize/4; v != 6*number && number > 6 && !short {
			t.Fatalf("element %d, of the important part %v, is %v, want %v", i, number, v, 6*number)
		}
	}
}

func TestPartsThatAreNotNumbersAreSentFirst(t *testing.T) {
	b := words(3 * partSize)
	view[float32](b)[0] = 1e9
	nan := float32(math.NaN())
	view[float32](b)[2*partSize/4] = nan
	if got := byMagnitude(b, Float32, partSize); got[0] != 2 || got[1] != 0 {
		t.Errorf("got %v, want part 2 first", got)
	}
}

func TestCallsThatMayNotLoseAnything(t *testing.T) {
	for _, c := range []Call{
		{Operation: AllGather, Element: Float32, Loss: 1},
		{Operation: AllReduce, Element: Int32, Reduction: Sum, Loss: 1},
		{Operation: AllReduce, Element: Float32, Reduction: Max, Loss: 1},
		{Operation: AllReduce, Element: Float32, Reduction: Sum, Loss: MaxLoss + 1},
		{Operation: AllReduce, Element: Float32, Reduction: Sum, Loss: -1},
		{Operation: AllReduce, Element: Float32, Reduction: Sum, Loss: 1, Ordered: true},
	} {
		if err := c.Check(2); err == nil || !strings.Contains(err.Error(), "loss") && !strings.Contains(err.Error(), "lose") {
			t.Errorf("%+v: %v, want that it may not lose parts", c, err)
		}
	}
}

// A rank that drops more than the call allows, or sends parts that do not exist, ends the call.
func TestHostileParts(t *testing.T) {
	call := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 8, Loss: 100}
	announce := call.encode(Ring)
	part := func(i byte, size int) []byte {
		b := head{kindPart, uint32(partHead + size), 1}.append(nil)
		return append(append(b, i, 0, 0, 0), make([]byte, size)...)
	}
	end := head{kindEnd, 0, 1}.append(nil)
	for name, message := range map[string][]byte{
		"dropped 1 of 1":  end,
		"a part 7 of":     part(7, 16),
		"a part 0 of 8":   part(0, 4),
		"a part 0 of 20":  append(part(0, 16), part(0, 16)...),
		"a message of ki": head{kindData, 16, 1}.append(nil),
	} {
		conns := pipes(2)
		g, err := NewGroup(0, conns[0], Options{})
		if err != nil {
			t.Fatal(err)
		}
		peer := conns[1][0]
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		go func() {
			_, _ = peer.Write(append(head{kindCall, uint32(len(announce)), 1}.append(nil), announce...))
			_, _ = peer.Write(message)
		}()
		if err := g.Do(context.Background(), call, words(32)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want an error with %q", err, name)
		}
		g.Close()
		peer.Close()
	}
}
