package cli

import (
	"cmp"
	"slices"
	"sync"

	"github.com/outboard-run/outboard/internal/train/ranks"
)

// decisions are the last ones for each rank and subject.
type decisions struct {
	mu   sync.Mutex
	last []ranks.Decision
}

func (d *decisions) add(decision ranks.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.last, func(o ranks.Decision) bool { return o.Rank == decision.Rank && o.Subject == decision.Subject })
	switch {
	case i >= 0:
		d.last[i] = decision
	case len(d.last) < 2*maxTrainRanks:
		d.last = append(d.last, decision)
	}
}

// print prints the decisions by rank.
func (d *decisions) print(env *Env) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.last, func(a, b ranks.Decision) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Subject, b.Subject))
	})
	for _, o := range d.last {
		printSafe(env.Stderr, "outboard: rank %d, %s: %s\n", o.Rank, o.Subject, clean(o.Text))
	}
}
