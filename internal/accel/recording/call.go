package recording

import (
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// join makes the record of a thread's next call.
func (p *joiner) join(t *threadReader) (trace.Record, error) {
	c := &t.call
	if int(c.op) >= len(p.functions) || c.op == 0 {
		return trace.Record{}, malformed("function %d of %d", c.op, len(p.functions))
	}
	f := &p.functions[c.op]
	begin := max(c.begin, t.last)
	end := max(c.begin+c.duration, begin)
	r := trace.Record{
		Process: p.index, Thread: t.thread, Op: c.op, Failed: c.flags&flagFailed != 0, Command: f.command,
		Forward: c.forward, Backward: c.backward,
		Gap: begin - t.last, Begin: begin - p.origin, End: end - p.origin,
	}
	t.last = end
	q := p.queue(f, c)
	if q != nil {
		r.Queue, r.Device, r.OutOfOrder = q.number, q.device, q.outOfOrder
	}
	p.resolveWaits(c, &r)
	var err error
	if p.local {
		err = p.joinLocal(f, c, &r, q)
	} else {
		err = p.joinRemote(f, c, &r, q)
	}
	if f.watches {
		p.watch(c, &r)
		return r, err
	}
	p.finish(f, c, &r, q)
	return r, err
}

// queue returns the state of the call's queue, which the call may have created.
func (p *joiner) queue(f *function, c *rawCall) *queueState {
	if c.queue == 0 {
		return nil
	}
	q := p.queues[c.queue]
	if made := f.creates && !f.command; made || q == nil {
		p.lastQueue++
		q = &queueState{number: p.lastQueue, device: c.link}
		if made {
			q.outOfOrder = c.detail&queueOutOfOrder != 0
		}
		if p.local {
			q.device = p.byHandle[c.object]
		}
		if len(p.queues) < lookAhead {
			p.queues[c.queue] = q
		}
	}
	return q
}

// resolveWaits sets the numbers of the events that the call waits for. Addresses of events are
// reused.
func (p *joiner) resolveWaits(c *rawCall, r *trace.Record) {
	p.waits = p.waits[:0]
	for _, handle := range c.waits {
		if e, ok := p.events[handle]; ok {
			p.waits = append(p.waits, e.number)
		}
	}
	r.Waits = p.waits
}

// joinLocal derives the class and the messages that the call would have if it were forwarded, and
// adds the device's times.
func (p *joiner) joinLocal(f *function, c *rawCall, r *trace.Record, q *queueState) error {
	blocking := c.flags&flagBlocking != 0
	r.Class = f.classify(blocking)
	r.Blocking = f.blocking(r.Class)
	switch {
	case r.Failed && f.answer != "wait": // the library refuses the call, and sends nothing
		r.Forward, r.Backward = 0, 0
	case f.name == "clEnqueueSVMMemcpy" && r.Forward > 0:
		r.Forward += messageHead // else it is a marker
	case f.size > 0:
		r.Forward += f.size
	}
	if r.Class == trace.Early && r.Backward > 0 {
		r.Backward += noticeWords // data that is not waited for names its read
	}
	p.trackMaps(f, c, r)
	p.library.answer(f, c, r)
	if f.timed && !r.Failed {
		t, ok, err := p.devices.find(c.number)
		if err != nil {
			return err
		}
		if ok {
			p.setDeviceTimes(c, r, t, blocking)
		}
	}
	r.Blocked = min(max(0, p.waitedUntil(f, c, r, q, blocking)-r.Begin), r.Duration())
	r.Execute = r.Duration() - r.Blocked
	return nil
}

// setDeviceTimes sets the device's times on the trace's clock.
func (p *joiner) setDeviceTimes(c *rawCall, r *trace.Record, t deviceTimes, blocking bool) {
	k := p.clocks[r.Device]
	if k == nil {
		k = &driverClock{}
		p.clocks[r.Device] = k
	}
	k.observe(t, c.begin, c.begin+c.duration, blocking)
	if k.known && t.end >= t.start {
		r.Start, r.DeviceTime = k.toHost(t.start)-p.origin, t.end-t.start
	}
}

// waitedUntil returns when the command or event that a call waits for was complete; no later than
// its beginning for a call that does not wait.
func (p *joiner) waitedUntil(f *function, c *rawCall, r *trace.Record, q *queueState, blocking bool) int64 {
	switch {
	case f.command && blocking && r.HasDeviceTime():
		return r.Start + r.DeviceTime
	case f.name == "clFinish" && q != nil, f.command && blocking && q != nil && !q.outOfOrder:
		return q.lastEnd
	case f.waits:
		until := r.Begin
		for _, handle := range c.waits {
			until = max(until, p.events[handle].end)
		}
		return until
	}
	return r.Begin
}

// finish records the event and the queue's progress, to which later calls refer.
func (p *joiner) finish(f *function, c *rawCall, r *trace.Record, q *queueState) {
	deviceEnd := int64(0)
	if r.HasDeviceTime() {
		deviceEnd = r.Start + r.DeviceTime
	}
	if q != nil {
		q.lastEnd = max(q.lastEnd, deviceEnd)
	}
	switch {
	case c.event == 0:
	case f.creates && !r.Failed:
		p.lastEvent++
		r.Event = p.lastEvent
		if len(p.events) < lookAhead {
			p.events[c.event] = eventState{number: p.lastEvent, end: deviceEnd, command: f.command}
		}
	default:
		r.Event = p.events[c.event].number
	}
}
