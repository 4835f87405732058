package recording

import "github.com/outboard-run/outboard/internal/accel/trace"

// watch sets the event that a call polls, or that a callback is for. The first such call of an event
// has the library ask for a notice of its completion; a notice counts as a wait without a message
// (cmd/libopencl/objects/event.c: event_watch).
func (p *joiner) watch(c *rawCall, r *trace.Record) {
	e, known := p.events[c.event]
	if !known || r.Failed {
		return
	}
	p.waits = append(p.waits[:0], e.number)
	r.Waits = p.waits
	switch {
	case c.flags&flagNotice != 0:
		r.Blocking = trace.HostBlocking
	case p.local && e.command && !e.watched:
		r.Class, r.Forward = trace.Early, watchSize
	}
	e.watched = true
	p.events[c.event] = e
}
