package bucket

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// rivalry is how long after a conflict an owner assumes that another owner is active.
	rivalry = 5 * time.Second
	// longestTurn bounds the back-off before a commit.
	longestTurn = 20 * time.Millisecond
)

// turnTaking gives the owners that write to one bucket fair shares. The owner that has
// committed last knows the last revision and would win the next compare-and-swap as well, so it
// backs off for a random time around the time that its own last conflict took to resolve.
// Only the owner's goroutine uses it.
type turnTaking struct {
	met  time.Time     // time of the last conflict
	from time.Time     // time of the first conflict since the last commit, or zero
	took time.Duration // from that conflict to the commit that resolved it
	next bool          // whether this owner was the last to commit
}

func (t *turnTaking) lost() {
	t.met, t.next = time.Now(), false
	if t.from.IsZero() {
		t.from = t.met
	}
}

func (t *turnTaking) won() {
	t.next = true
	if !t.from.IsZero() {
		t.took, t.from = min(time.Since(t.from), longestTurn), time.Time{}
	}
}

// wait backs off if another owner is active.
func (t *turnTaking) wait(ctx context.Context) {
	if !t.next || t.took == 0 || time.Since(t.met) > rivalry {
		return
	}
	pause := time.NewTimer(rand.N(2 * t.took))
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}
