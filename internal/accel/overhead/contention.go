package overhead

import (
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// sharedDevice is a device that several programs use. Its node gives each of them the same share of
// the device's time, in turns (internal/accel/arbiter), so that the commands of one program do not
// wait behind all commands that another one has enqueued: while both have commands, each command
// takes as much longer as the other program's commands run meanwhile.
//
// Which commands compete depends on their times. Those of the first lane decide it, since each link
// is an evaluation of its own when programs are predicted together.
type sharedDevice struct{ shares []*deviceShare }

// deviceShare is one program's share of a device. A nil deviceShare is that of a program alone.
type deviceShare struct {
	device  *sharedDevice
	program *model
	// busy is when the program's commands so far are complete, and latest the queue of the last one.
	busy   cost.Point
	latest cost.Resource
}

// deviceShare returns the program's share of a device, which traces of several programs name alike;
// nil for a program alone.
func (k *links) deviceShare(m *model, d *trace.Device) *deviceShare {
	if k.shared == nil {
		return nil
	}
	name := d.ID + "\x00" + d.Name
	device := k.shared[name]
	if device == nil {
		device = &sharedDevice{}
		k.shared[name] = device
	}
	for _, s := range device.shares {
		if s.program == m {
			return s
		}
	}
	s := &deviceShare{device: device, program: m, busy: m.e.Point()}
	device.shares = append(device.shares, s)
	return s
}

// contend returns the time of other programs' commands during a command that takes work and could
// begin at the given point on the queue. The commands that these programs have enqueued take as
// much longer.
func (s *deviceShare) contend(m *model, queue cost.Resource, at cost.Point, work cost.Time) (others cost.Time, err error) {
	if s == nil || len(s.device.shares) == 1 {
		return 0, nil
	}
	begin, err := latestOf(m.e, at, m.e.Free(queue))
	if err != nil {
		return 0, err
	}
	for _, other := range s.device.shares {
		if other == s || other.latest == 0 {
			continue
		}
		until, err := latestOf(m.e, other.busy, m.e.Free(other.latest))
		if err != nil {
			return 0, err
		}
		left := cost.Time(float64(max(0, until-begin)) / m.l.device[exact])
		part := min(work, left)
		m.e.Add(cost.Task{On: other.latest, Cost: part})
		others += part
	}
	return others, nil
}

// enqueued records a command that the device completes at the given point.
func (s *deviceShare) enqueued(m *model, queue cost.Resource, done cost.Point) {
	if s == nil {
		return
	}
	s.latest = queue
	m.e.Raise(s.busy, done)
}

// dueAnswer is an answer that waits for its turn: programs share the downlink, whose bytes are added
// in the order of their times. Another program may send many answers before a long command ends.
type dueAnswer struct {
	thread *thread
	record trace.Record
	at     flow
}

// respond sends the answer of a call. For a program beside others it waits for the next step.
func respond(m *model, t *thread, r *trace.Record, at flow) error {
	if m.links.shared == nil {
		return m.answer(t, r, at)
	}
	head := m.e.Point()
	tail := head
	m.e.Raise(head, at.head)
	if at.tail != at.head {
		tail = m.e.Point()
		m.e.Raise(tail, at.tail)
	}
	m.due = &dueAnswer{thread: t, record: *r, at: flow{head, tail}}
	return nil
}

// sendDue sends the answer that is due.
func (m *model) sendDue() error {
	due := m.due
	m.due, m.caller = nil, due.thread
	err := m.answer(due.thread, &due.record, due.at)
	m.e.Release(due.at.head)
	if due.at.tail != due.at.head {
		m.e.Release(due.at.tail)
	}
	return err
}

// latestOf returns the later of two points in the first lane.
func latestOf(e *cost.Evaluator, a, b cost.Point) (cost.Time, error) {
	first, err := e.At(a, int(exact))
	if err != nil {
		return 0, err
	}
	second, err := e.At(b, int(exact))
	return max(first, second), err
}
