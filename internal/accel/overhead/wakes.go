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

// path is the link of a lane, and the factor on the costs of forwarding there.
type path struct {
	link       Link
	forwarding float64
}

// add adds the penalties of a lane. longer returns the penalty after a pause of the forwarded run;
// own is the pause without a round trip of the link.
func (a *wakePenalties) add(p path, longer func(forwarded, own time.Duration) time.Duration) {
	penalty := func(forwarded, own time.Duration) cost.Time {
		if p.link.SharedMemory {
			return 0
		}
		return cost.Time(float64(cost.Of(longer(forwarded, own))) * p.forwarding)
	}
	for i, pause := range pauses {
		a.after[i] = append(a.after[i], penalty(pause, pause))
		a.afterTrip[i] = append(a.afterTrip[i], penalty(p.link.RTT+pause, pause))
	}
}

// coldCommands returns by how much the first command after a pause takes longer than in the trace:
// on the program's machine, or over the link that was recorded.
func (c *Constants) coldCommands(l *lanes, header *trace.Header) *wakePenalties {
	out := &wakePenalties{}
	command := func(w *WakeUp) time.Duration { return w.Command }
	recorded := func(own time.Duration) time.Duration {
		return c.after(own+time.Duration(header.Devices[0].Link.RTT), command)
	}
	if header.Mode == trace.Local {
		recorded = func(own time.Duration) time.Duration {
			return c.after(own, func(w *WakeUp) time.Duration { return w.LocalCommand })
		}
	}
	for _, p := range l.paths {
		out.add(p, func(forwarded, own time.Duration) time.Duration {
			return max(0, c.after(forwarded, command)-recorded(own))
		})
	}
	return out
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
	// pause and trip are those before the first message since the worker was idle for soonPause or
	// more; commanded says that a command has followed.
	pause     int64
	trip      bool
	commanded bool
}

// beforeMessage returns the pause before a message towards the device, without time in transit, and
// whether a round trip passed in addition.
func (i *idleness) beforeMessage(r *trace.Record, class trace.Class) (pause int64, trip bool) {
	pause, trip = max(0, r.Begin-i.sent-i.wire), i.waited
	i.sent, i.wire, i.waited = r.Begin+r.Encode, inTransit(r), class == trace.WaitedFor
	if wakesRelay(pause, trip) {
		i.pause, i.trip, i.commanded = pause, trip, false
	}
	return pause, trip
}

// firstCommand reports whether a record has the first command since a pause.
func (i *idleness) firstCommand(r *trace.Record) bool {
	first := r.Command && !i.commanded
	i.commanded = i.commanded || r.Command
	return first
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

// wakesRelay reports whether a message after a pause, or after a round trip, finds the relay asleep.
func wakesRelay(pause int64, trip bool) bool { return trip || pause >= int64(soonPause) }

// inTransit returns for how much of the time up to a call's end its messages were in transit: none
// unless the recorded program waited for the answer.
func inTransit(r *trace.Record) int64 {
	if r.Class != trace.WaitedFor {
		return 0
	}
	return r.WireForward + r.WireBackward
}

// wakeDevice delays a message from a program, after a pause, to a worker whose device has been idle.
func wakeDevice(m *model, in flow, r *trace.Record, class trace.Class, pause int64, trip bool) (flow, error) {
	out, err := m.wakeUp(&m.links.upWakes, in, pause, trip)
	if err == nil && class == trace.WaitedFor && !wakesRelay(pause, trip) {
		out, err = m.wakeUp(&m.second, out, m.idle.pause, m.idle.trip)
	}
	if err != nil || !m.idle.firstCommand(r) {
		return out, err
	}
	return m.wakeUp(&m.cold, out, m.idle.pause, m.idle.trip)
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
