package collective

import (
	"testing"
	"testing/synctest"

	"github.com/outboard-run/outboard"
)

// The temporary memory of the calls of all groups has one bound. A call beyond it ends its group for
// all ranks, and a group that has ended holds nothing.
func TestBuffersAreBounded(t *testing.T) {
	const small, large = 1 << 10, 1 << 20
	for name, operation := range map[string]Call{
		"doubling": {Operation: AllReduce, Element: Uint8, Reduction: Sum}, // exchanges whole buffers
		"ordered":  {Operation: ReduceScatter, Element: Uint8, Reduction: Sum, Ordered: true},
		"to all":   {Operation: AllToAll, Element: Uint8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := &Buffers{Limit: large}
				call := func(all []*Group, count int) []error {
					return everybody(all, func(g *Group) error {
						c := operation
						c.Count = count
						return g.Do(t.Context(), c, make([]byte, count))
					})
				}
				o := Options{Buffers: held, Link: far}
				first, second := groups(t, 4, o), groups(t, 4, o)
				for rank, err := range append(call(first, small), call(second, small)...) {
					if err != nil {
						t.Errorf("rank %d, within the bound: %v", rank%4, err)
					}
				}
				exhausted := 0
				for rank, err := range call(first, large) {
					if err == nil {
						t.Errorf("rank %d, beyond the bound, has a result", rank)
					}
					if outboard.KindOf(err) == outboard.Exhausted {
						exhausted++
					}
				}
				if exhausted == 0 {
					t.Error("no rank says what is exhausted")
				}
				for rank, err := range call(second, small) {
					if err != nil {
						t.Errorf("rank %d of another group: %v", rank, err)
					}
				}
				closeAll(first)
				closeAll(second)
				synctest.Wait()
				if n := held.Held(); n != 0 {
					t.Errorf("%d bytes are still held", n)
				}
			})
		})
	}
}
