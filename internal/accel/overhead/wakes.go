package overhead

import (
	"slices"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// pauses are the pauses that the model distinguishes: the pause before a message is rounded to the
// nearest of them.
var pauses = [...]time.Duration{
	0, 30 * time.Microsecond, 60 * time.Microsecond, 100 * time.Microsecond, 150 * time.Microsecond, 200 * time.Microsecond,
	300 * time.Microsecond, 400 * time.Microsecond, 600 * time.Microsecond, 900 * time.Microsecond, 1500 * time.Microsecond, 2500 * time.Microsecond, 4 * time.Millisecond, 8 * time.Millisecond, 13 * time.Millisecond,
}

// nearest returns the index of the nearest of the pauses.
func nearest(pause time.Duration) int {
	i, _ := slices.BinarySearch(pauses[:], pause)
	if i == len(pauses) || i > 0 && pause-pauses[i-1] < pauses[i]-pause {
		return i - 1
	}
	return i
}

// wakePenalties is the additional time of a wake-up, in each lane, over that of processes that handled a
// message just before: after each of the pauses, and after a round trip of the link and each of the
// pauses.
type wakePenalties struct {
	after, afterTrip [len(pauses)][]cost.Time
}

func (a *wakePenalties) add(link Link, c *Constants, forwarding float64) {
	longer := func(pause time.Duration) cost.Time {
		if link.SharedMemory {
			return 0
		}
		return cost.Time(float64(cost.Of(c.wakeAfter(pause)-c.wakeAfter(0))) * forwarding)
	}
	for i, pause := range pauses {
		a.after[i] = append(a.after[i], longer(pause))
		a.afterTrip[i] = append(a.afterTrip[i], longer(link.RTT+pause))
	}
}

// wakes delays messages of one direction that find the processes on their way asleep.
type wakes struct {
	latencies        *wakePenalties
	after, afterTrip [len(pauses)]cost.Resource // 0 until needed
}

// on returns the resource that delays a message after a pause, in addition to a round trip of the
// link if trip is set.
func (w *wakes) on(e *cost.Evaluator, pause int64, trip bool) (cost.Resource, error) {
	i := nearest(time.Duration(pause))
	on, latency := &w.after[i], w.latencies.after[i]
	if trip {
		on, latency = &w.afterTrip[i], w.latencies.afterTrip[i]
	}
	if *on != 0 {
		return *on, nil
	}
	var err error
	*on, err = e.Resource(cost.Profile{Latency: latency})
	return *on, err
}

// idleness tracks the times of a recording: it tells how long each direction of the link was idle.
type idleness struct {
	// sent is when the last message left towards the device, in ns of the recording; wire is how
	// long that message and its answer were in transit, and waited says that there was an answer.
	sent, wire int64
	waited     bool
	// answered is when the last answer arrived.
	answered int64
}

// beforeMessage returns the pause before a message towards the device, without time in transit, and
// whether a round trip passed in addition.
func (i *idleness) beforeMessage(r *trace.Record, class trace.Class) (pause int64, trip bool) {
	pause, trip = max(0, r.Begin-i.sent-i.wire), i.waited
	i.sent, i.wire, i.waited = r.Begin+r.Encode, inTransit(r), class == trace.WaitedFor
	return pause, trip
}

// beforeAnswer returns the pause before an answer, without time in transit. A round trip passed in
// addition. A call whose answer the recorded program did not wait for ended before its execution.
func (i *idleness) beforeAnswer(r *trace.Record) int64 {
	pause := max(0, r.End-inTransit(r)-i.answered)
	if r.Class != trace.WaitedFor {
		pause += r.Execute
	}
	i.answered = r.End
	return pause
}

// inTransit returns for how much of the time up to a call's end its messages were in transit: none
// unless the recorded program waited for the answer.
func inTransit(r *trace.Record) int64 {
	if r.Class != trace.WaitedFor {
		return 0
	}
	return r.WireForward + r.WireBackward
}

// wakeUp delays a message to processes that sleep.
func (m *model) wakeUp(w *wakes, in flow, pause int64, trip bool) (flow, error) {
	on, err := w.on(m.e, pause, trip)
	if err != nil {
		return in, err
	}
	head := m.point()
	m.e.Add(cost.Task{On: on, After: [2]cost.Point{in.head}, Done: head})
	if in.head == in.tail {
		return flow{head, head}, nil
	}
	m.e.Raise(in.tail, head)
	return flow{head, in.tail}, nil
}
