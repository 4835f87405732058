package bucket

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// rivalry is how long an owner counts with another one that it has met.
	rivalry = 5 * time.Second
	// longestTurn bounds how long an owner makes room for others.
	longestTurn = 20 * time.Millisecond
)

// turnTaking makes owners that write to one bucket take turns. The one that has
// committed knows the last revision, and would be first again and again: so it
// waits about as long as it took itself to come in after a conflict.
// Only the owner uses it.
type turnTaking struct {
	met  time.Time // when it last lost
	from time.Time // since when it tries to come in, zero if it does not
	took time.Duration
	next bool // it was the last to commit
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

// wait makes room, when others want it.
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
