package collective

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// objects is a store in memory.
type objects struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (o *objects) Put(_ context.Context, name string, content []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[name] = slices.Clone(content)
	return nil
}

func (o *objects) Get(_ context.Context, name string, limit int64) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c, ok := o.all[name]
	if !ok || int64(len(c)) > limit {
		return nil, fmt.Errorf("object %s: %w", name, fs.ErrNotExist)
	}
	return c, nil
}

func (o *objects) Delete(_ context.Context, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, name)
	return nil
}

// A wire is one direction of a rank's link, which transfers one object at a time.
type wire struct {
	mu        sync.Mutex
	bandwidth float64
}

func (w *wire) transfer(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	time.Sleep(time.Duration(float64(bytes) / w.bandwidth * float64(time.Second)))
}

// linked is a rank's way to the store.
type linked struct {
	*objects
	up, down *wire
}

func (l linked) Put(ctx context.Context, name string, content []byte) error {
	l.up.transfer(len(content))
	return l.objects.Put(ctx, name, content)
}

func (l linked) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	c, err := l.objects.Get(ctx, name, limit)
	l.down.transfer(len(c))
	return c, err
}

// storeGroups returns groups of n ranks with a store; of gives each its way to it.
func storeGroups(t fataler, n int, of func(o *objects) Objects, plain bool) ([]*Group, *objects) {
	o := &objects{all: map[string][]byte{}}
	all := make([]*Group, n)
	for rank, conns := range pipes(n) {
		g, err := NewGroup(rank, conns, Options{Store: Store{Objects: of(o), Prefix: "g/", Plain: plain}})
		if err != nil {
			t.Fatal(err)
		}
		all[rank] = g
	}
	return all, o
}

func TestSumsThroughAStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, calls := rapid.IntRange(1, 6).Draw(t, "ranks"), rapid.IntRange(1, 4).Draw(t, "calls")
		all, o := storeGroups(t, n, func(o *objects) Objects { return o }, rapid.Bool().Draw(t, "plain"))
		defer closeAll(all)
		for range calls {
			check(t, all, Call{
				Operation: AllReduce, Store: true, Element: rapid.SampledFrom([]Element{Int64, Int16, Uint8}).Draw(t, "element"),
				Reduction: rapid.SampledFrom([]Reduction{Sum, Average, Max}).Draw(t, "reduction"), Count: rapid.IntRange(0, 40).Draw(t, "elements"),
			})
		}
		if n > 1 && len(o.all) != n {
			t.Errorf("%d objects are left of %d calls, want the %d of the last one", len(o.all), calls, n)
		}
	})
}

// The forms take what FuncPipe says, on a virtual clock.
func TestTimesThroughAStore(t *testing.T) {
	const size, bandwidth = 1 << 20, 12.5e6 // 100 Mbit/s
	for _, n := range []int{4, 8, 16} {
		for _, plain := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				all, _ := storeGroups(t, n, func(o *objects) Objects {
					return linked{o, &wire{bandwidth: bandwidth}, &wire{bandwidth: bandwidth}}
				}, plain)
				bufs := make([][]byte, n)
				for rank := range bufs {
					bufs[rank] = words(size)
				}
				began := time.Now()
				c := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: size / 4, Store: true}
				if err := errors.Join(everybody(all, func(g *Group) error { return g.Do(context.Background(), c, bufs[g.Rank()]) })...); err != nil {
					t.Error(err)
				}
				took, want := time.Since(began).Seconds(), 2*size/bandwidth
				if plain {
					want = (3 - 2/float64(n)) * size / bandwidth
				}
				if math.Abs(took/want-1) > 0.05 {
					t.Errorf("%d ranks, plain %v: %.4f s, want %.4f", n, plain, took, want)
				}
				closeAll(all)
				synctest.Wait()
			})
		}
	}
}

// An object of another size ends the call.
func TestObjectsOfOtherSizes(t *testing.T) {
	all, _ := storeGroups(t, 2, func(o *objects) Objects { return cutting{o} }, false)
	defer closeAll(all)
	for rank, err := range everybody(all, func(g *Group) error {
		return g.Do(context.Background(), Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 64, Store: true}, words(256))
	}) {
		if err == nil {
			t.Errorf("rank %d got no error", rank)
		}
	}
	c := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 1, Store: true}
	if err := groups(t, 1, Options{})[0].Do(context.Background(), c, words(4)); err == nil {
		t.Error("a group without a store took the call")
	}
}

// cutting cuts off objects.
type cutting struct{ *objects }

func (c cutting) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	got, err := c.objects.Get(ctx, name, limit)
	return got[:len(got)/2], err
}
