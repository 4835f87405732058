package overhead

import (
	"math"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// recency orders objects by their last use in the recording. A prediction keeps a bounded number of
// threads, sessions and queues: the one that has been idle the longest passes its resources on to a
// new one, as programs do that start a thread or create a queue for each piece of work.
type recency struct {
	used   int64 // when the last call ended, in ns
	number int   // of the object, where several ended at the same time
}

func newRecency(m *model, r *trace.Record) recency {
	m.made++
	return recency{r.End, m.made}
}

func (r *recency) lastUse() recency { return *r }

// removeIdlest removes the object from a map that has been idle the longest.
func removeIdlest[K comparable, V interface{ lastUse() recency }](of map[K]V) V {
	var key K
	idlest := recency{used: math.MaxInt64}
	for k, v := range of {
		if r := v.lastUse(); r.used < idlest.used || r.used == idlest.used && r.number < idlest.number {
			key, idlest = k, r
		}
	}
	found := of[key]
	delete(of, key)
	return found
}
