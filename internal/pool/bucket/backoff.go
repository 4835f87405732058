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

// fairBackoff gives the owners that write to one bucket fair shares. The owner that has
// committed last knows the last revision and would win the next compare-and-swap as well, so it
// backs off for a random time around the time that its own last conflict took to resolve.
// Only the owner's goroutine uses it.
type fairBackoff struct {
	lastConflict  time.Time     // time of the last conflict
	firstConflict time.Time     // time of the first conflict since the last commit, or zero
	resolveTime   time.Duration // from that conflict to the commit that resolved it
	committedLast bool          // whether this owner was the last to commit
}

func (t *fairBackoff) lost() {
	t.lastConflict, t.committedLast = time.Now(), false
	if t.firstConflict.IsZero() {
		t.firstConflict = t.lastConflict
	}
}

func (t *fairBackoff) won() {
	t.committedLast = true
	if !t.firstConflict.IsZero() {
		t.resolveTime, t.firstConflict = min(time.Since(t.firstConflict), longestTurn), time.Time{}
	}
}

// wait backs off if another owner is active.
func (t *fairBackoff) wait(ctx context.Context) {
	if !t.committedLast || t.resolveTime == 0 || time.Since(t.lastConflict) > rivalry {
		return
	}
	pause := time.NewTimer(rand.N(2 * t.resolveTime))
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}
