package overhead

import (
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// maxEvents is the number of events whose times are kept. A wait for an older event counts as over.
const maxEvents = 512

// eventTable holds the times of the latest events.
type eventTable struct {
	points map[queueKey]int
	ring   [maxEvents]event
	next   int
}

// event is the completion of an event, in the evaluation and, in ns, in the recording.
type event struct {
	key      queueKey
	at       cost.Point
	recorded int64
}

func (t *eventTable) init() { t.points = make(map[queueKey]int, maxEvents) }

// set records when the record's event is complete.
func (t *eventTable) set(e *cost.Evaluator, r *trace.Record, done outcome) {
	slot := &t.ring[t.next]
	if slot.at != 0 {
		if t.points[slot.key] == t.next {
			delete(t.points, slot.key)
		}
		e.Release(slot.at)
	}
	*slot = event{queueKey{r.Process, r.Event}, e.Point(), done.recorded}
	e.Raise(slot.at, done.tail)
	t.points[slot.key] = t.next
	t.next = (t.next + 1) % maxEvents
}

// get returns an event, nil if it is not kept.
func (t *eventTable) get(process uint32, id uint64) *event {
	if i, ok := t.points[queueKey{process, id}]; ok {
		return &t.ring[i]
	}
	return nil
}
