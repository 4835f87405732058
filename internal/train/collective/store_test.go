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

	"github.com/outboard-run/outboard/internal/train/plan"
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

// A wire is one direction of a rank's link, which transfers one object at a time. A virtual clock
// stands still while a goroutine waits for a mutex, so it has a channel.
type wire struct {
	used      chan struct{}
	bandwidth float64
}

func newWire(bandwidth float64) *wire { return &wire{make(chan struct{}, 1), bandwidth} }

func (w *wire) transfer(bytes int) {
	w.used <- struct{}{}
	defer func() { <-w.used }()
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

// The forms take what FuncPipe says, or less by the pieces, on a virtual clock; and what the planner
// expects.
func TestTimesThroughAStore(t *testing.T) {
	const size, bandwidth = 4 << 20, 12.5e6 // 100 Mbit/s
	for _, n := range []int{4, 8, 16} {
		for _, plain := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				all, _ := storeGroups(t, n, func(o *objects) Objects {
					return linked{o, newWire(bandwidth), newWire(bandwidth)}
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
				took, limit := time.Since(began).Seconds(), 2*size/bandwidth
				if plain {
					limit = (3 - 2/float64(n)) * size / bandwidth
				}
				if want := planned(t, n, size, bandwidth, plain); math.Abs(took/want-1) > 0.05 || took > 1.01*limit {
					t.Errorf("%d ranks, plain %v: %.4f s, want %.4f, at most %.4f", n, plain, took, want, limit)
				}
				closeAll(all)
				synctest.Wait()
			})
		}
	}
}

// planned returns the time that the planner expects of a sum through a store.
func planned(t *testing.T, ranks, size int, bandwidth float64, plain bool) float64 {
	t.Helper()
	j := &plan.Job{
		Layers:  []plan.Layer{{Name: "layer", Parameters: float64(size), Forward: 1, Backward: 1}},
		Devices: []plan.Device{{Name: "device", Speed: 1, Memory: 1e12, Bandwidth: bandwidth}},
		Batch:   ranks, Reduction: plan.Store,
	}
	if plain {
		j.Reduction = plan.PlainStore
	}
	p, err := j.Evaluate(plan.Choice{Stages: []plan.Stage{{End: 1}}, Replicas: ranks, MicroBatch: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p.Sync[0]
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

// refusing is a store that takes no objects.
type refusing struct{ *objects }

func (refusing) Put(context.Context, string, []byte) error { return errors.New("the store is full") }

// An upload that fails ends the call: no rank waits for the objects of the others.
func TestFailedUploads(t *testing.T) {
	for _, plain := range []bool{false, true} {
		all, _ := storeGroups(t, 3, func(o *objects) Objects { return refusing{o} }, plain)
		for rank, err := range everybody(all, func(g *Group) error {
			return g.Do(context.Background(), Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 64, Store: true}, words(256))
		}) {
			if err == nil {
				t.Errorf("plain %v: rank %d got no error", plain, rank)
			}
		}
		closeAll(all)
	}
}
