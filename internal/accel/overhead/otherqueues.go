package overhead

import (
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// maxLag bounds how long a device may be idle before a command that could begin, in ns, when a
// local run is forwarded. In a longer pause the command waited for commands of other queues, or for a
// flush, which the worker does by itself.
const maxLag = 100_000

// pause returns the idle time of the device before a command that could begin, in ns of the
// recording, and the completion of another queue's command that comes before it; 0 if no command
// does. The queues of a device share it: after a long pause a command begins in the order in which
// the recorded device served them.
func pause(m *model, q *queue, in outcome, r *trace.Record) (lag int64, other cost.Point) {
	if !r.HasDeviceTime() {
		return 0, 0
	}
	ready := max(q.recorded, in.recorded, submitted(m.header, r))
	lag = max(0, r.Start-ready)
	if m.header.Mode != trace.Local || m.direct || lag <= maxLag {
		return lag, 0
	}
	if c := m.commands.before(q, r, ready); c != nil {
		return min(maxLag, r.Start-c.recorded), c.done
	}
	return maxLag, 0
}

// maxCommands is the number of commands whose completions are kept for those of other queues.
const maxCommands = 64

// commandTable holds the completions of the latest commands of devices with several queues.
type commandTable struct {
	queues [maxDevices]deviceQueues
	ring   [maxCommands]command
	next   int
}

// deviceQueues are the queues of a device.
type deviceQueues struct {
	first *queue // nil for none
	count int
}

// maxDevices is the number of devices that a record can name.
const maxDevices = 256

// command is the completion of a command, in the evaluation and, in ns, in the recording.
type command struct {
	queue    *queue // nil for none
	device   uint8
	done     cost.Point
	recorded int64
}

// before returns the last command of another queue that the record's device completed before it began
// the record's command, and after that could begin; nil if there was none.
func (t *commandTable) before(q *queue, r *trace.Record, ready int64) *command {
	var last *command
	for i := range t.ring {
		c := &t.ring[i]
		switch {
		case c.queue == nil || c.queue == q || c.device != r.Device:
		case c.recorded <= ready || c.recorded > r.Start:
		case last == nil || c.recorded > last.recorded:
			last = c
		}
	}
	return last
}

// opened adds a queue of a device. The last command of the first queue counts only when there is
// another one: a program with one queue pays nothing.
func (t *commandTable) opened(m *model, q *queue, device uint8) {
	queues := &t.queues[device]
	queues.count++
	switch {
	case queues.count == 1:
		queues.first = q
	case queues.count == 2 && queues.first != nil && queues.first.recorded > 0:
		t.add(m, command{queue: queues.first, device: device, recorded: queues.first.recorded}, queues.first.all)
	}
}

// closed forgets a queue.
func (t *commandTable) closed(q *queue) {
	if queues := &t.queues[q.device]; queues.first == q {
		queues.first = nil
	}
}

// completed adds a command that is complete at the given point.
func (t *commandTable) completed(m *model, q *queue, r *trace.Record, done cost.Point) {
	if r.HasDeviceTime() && t.queues[r.Device].count > 1 {
		t.add(m, command{queue: q, device: r.Device, recorded: r.Start + r.DeviceTime}, done)
	}
}

func (t *commandTable) add(m *model, c command, done cost.Point) {
	if m.header.Mode != trace.Local || m.direct {
		return
	}
	last := &t.ring[t.next]
	if last.queue != nil {
		m.e.Release(last.done)
	}
	c.done = m.e.Point()
	m.e.Raise(c.done, done)
	*last = c
	t.next = (t.next + 1) % maxCommands
}
