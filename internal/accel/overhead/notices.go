package overhead

import "github.com/outboard-run/outboard/internal/accel/trace"

// Programs wait without calls that wait: they poll an event, or have a callback called. The worker tells
// the completion of such an event once, and the driver library answers polls from what has arrived.

// watchers returns, for each op, whether its calls poll events or have callbacks called.
func watchers(h *trace.Header) []bool {
	out := make([]bool, len(h.Ops))
	for i, op := range h.Ops {
		out[i] = op.Name == pollOp || op.Name == "clSetEventCallback"
	}
	return out
}

const pollOp = "clGetEventInfo"

// polling is a thread's loop of polls of an event that is not complete.
type polling struct {
	event uint64 // 0: none
	spent int64  // in the loop so far, in ns
}

// noticed returns the event that a record tells to be complete, nil if that is not known.
func noticed(m *model, r *trace.Record) *event {
	if !m.watchers[r.Op] || r.Blocking != trace.HostBlocking || len(r.Waits) != 1 {
		return nil
	}
	return m.events.get(r.Process, r.Waits[0])
}

// polls reports whether a record is a poll of an event that was not complete.
func polls(m *model, r *trace.Record) bool {
	return len(r.Waits) == 1 && r.Blocking != trace.HostBlocking && m.header.Ops[r.Op].Name == pollOp
}

// followPolls follows a thread's polls. It reports whether the record is one more in a loop, whose time
// is that of the wait. A loop that is left before the event is complete was the program's own work.
func followPolls(m *model, t *thread, r *trace.Record) (again bool) {
	again = polls(m, r) && t.polling.event == r.Waits[0]
	switch {
	case again:
		t.polling.spent += r.Gap + r.Duration()
	case polls(m, r):
		t.leaveLoop()
		t.polling = polling{event: r.Waits[0]}
	case noticed(m, r) == nil || t.polling.event != r.Waits[0]:
		t.leaveLoop()
	}
	return again
}

func (t *thread) leaveLoop() {
	t.pending += ns(t.polling.spent)
	t.polling = polling{}
}

// awaitNotice makes a thread wait for the notice of an event. What the thread then took to see it is the
// program's own time.
func awaitNotice(m *model, t *thread, r *trace.Record, e *event) error {
	callback := m.header.Ops[r.Op].Name != pollOp
	waited := callback || t.polling.event != 0
	t.polling = polling{}
	since := r.Begin
	if waited {
		since = max(r.Begin-r.Gap, e.recorded+halfTrip(m, r))
	} else {
		t.pending += ns(r.Gap)
	}
	known := m.known.answersLocally(r)
	m.run(t)
	switch {
	case m.direct || known:
		m.e.Wait(t.on, e.at)
		m.synchronize(t)
	default:
		m.traffic[r.Op].Waited++
		if err := respond(m, t, r, flow{e.at, e.at}); err != nil {
			return err
		}
	}
	t.pending += ns(max(0, r.End-since))
	return nil
}

// halfTrip returns how long a notice was in transit in the recording, in ns.
func halfTrip(m *model, r *trace.Record) int64 {
	if m.header.Mode == trace.Local {
		return 0
	}
	return m.header.Devices[r.Device].Link.RTT / 2
}
