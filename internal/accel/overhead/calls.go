package overhead

import (
	"strings"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// creations returns, for each op, whether its calls create objects: without shadow handles such
// calls would wait.
func creations(h *trace.Header) []bool {
	out := make([]bool, len(h.Ops))
	for i, op := range h.Ops {
		out[i] = strings.HasPrefix(op.Name, "clCreate")
	}
	return out
}

// builds returns, for each op, whether its calls compile kernels.
func builds(h *trace.Header) []bool {
	out := make([]bool, len(h.Ops))
	for i, op := range h.Ops {
		out[i] = op.Name == "clBuildProgram" || op.Name == "clCompileProgram" || op.Name == "clLinkProgram"
	}
	return out
}

// answerBytes is the size of an answer that carries nothing but a status.
const answerBytes = 40

// forward adds the tasks of a call that sends a message.
func (m *model) forward(t *thread, r *trace.Record, class trace.Class) error {
	forward := max(r.Forward, answerBytes)
	if class == trace.WaitedFor {
		forward += framing
	}
	pause, trip := m.idle.beforeMessage(r, class)
	sent, err := wakeDevice(m, m.encode(t, r, class, forward, wakesRelay(pause, trip)), r, class, pause, trip)
	if err != nil {
		return err
	}
	worker, err := m.worker(r)
	if err != nil {
		return err
	}
	issued, done, err := m.onDevice(worker, m.sendAhead(t, sent, forward), r)
	if err != nil {
		return err
	}
	switch {
	case class != trace.WaitedFor && r.Backward > 0:
		m.send(&m.down, done.flow, r.Backward) // only takes its share of the link
	case class == trace.WaitedFor && waits(r):
		return respond(m, t, r, m.returned(t, r, done))
	case class == trace.WaitedFor:
		return respond(m, t, r, issued)
	}
	return nil
}

// encode adds the thread's work for a message, and returns when its bytes leave. The first bytes of
// a large message are in transit while the thread copies the others. In a recorded message that wakes
// the relay, most of the time is that of the system call: it is part of the calibrated wake-up, and
// the relay works meanwhile.
func (m *model) encode(t *thread, r *trace.Record, class trace.Class, bytes uint64, wakes bool) flow {
	busy := m.onThread(r, class)
	if wakes && bytes < bulkSize {
		busy = min(busy, cost.Of(m.c.Encode)+m.c.copying(r.Forward))
	}
	if bytes < fluidSize {
		t.pending += busy
		sent := m.run(t)
		return flow{sent, sent}
	}
	head := m.run(t)
	t.pending = busy
	return flow{head, m.run(t)}
}

// worker returns the resource that executes the messages of the record's session.
func (m *model) worker(r *trace.Record) (cost.Resource, error) {
	key := workerKey{r.Process, r.Device}
	if w := m.workers[key]; w != nil {
		w.used = r.End
		return w.on, nil
	}
	w := &worker{}
	if len(m.workers) < maxWorkers {
		var err error
		if w.on, err = m.e.Resource(cost.Profile{Slowdown: m.l.forwarding}); err != nil {
			return 0, err
		}
	} else {
		w.on = removeIdlest(m.workers).on
	}
	w.recency = newRecency(m, r)
	m.workers[key] = w
	return w.on, nil
}

// outcome is the completion of a call at the device's side: when the first and the last byte of its
// answer are available, and when it was complete in the recording, in ns; 0 if that is not known.
type outcome struct {
	flow
	recorded int64
}

// onDevice adds the execution of a message that arrives: issued is when the driver's call has
// returned to the worker, unless the call waits for the device, and done is when its command is
// complete.
func (m *model) onDevice(worker cost.Resource, arrived flow, r *trace.Record) (issued flow, done outcome, err error) {
	if !writesPieces(m, r) {
		arrived.head = arrived.tail // the driver's call needs all of the message
	}
	before, after := issue(m.header, r)
	work := cost.Of(m.c.Dispatch) + ns(before)
	if m.header.Mode == trace.Local && m.builds[r.Op] {
		work += cost.Of(m.c.Build)
	}
	m.caller.device.Use(work + ns(after))
	m.work.worker += work + ns(after)
	issued = m.pass(worker, arrived, work, 0)
	done, err = m.command(issued, r)
	if after > 0 {
		issued = m.pass(worker, issued, ns(after), 0)
	}
	return issued, done, err
}

// issue splits the driver's processor time for a call, in ns: the time until the device has the
// call's command, and the time after that. Devices begin a command before the call that enqueues it
// returns. The time after a wait for the device is no part of it: see [returning].
func issue(h *trace.Header, r *trace.Record) (before, after int64) {
	before = r.Execute
	if r.HasDeviceTime() {
		before = min(before, max(0, r.Start-called(h, r)))
	}
	switch {
	case !waits(r):
		return before, r.Execute - before
	case r.HasDeviceTime():
		return before, 0
	}
	return 0, 0
}

// called returns when the driver was called in the recording, in ns.
func called(h *trace.Header, r *trace.Record) int64 {
	if h.Mode == trace.Local {
		return r.Begin
	}
	return r.Begin + r.Encode + r.WireForward
}

// waits reports whether the call waits for the device.
func waits(r *trace.Record) bool { return r.Blocking == trace.HostBlocking }

// command adds the command of a call, if it has one, and the events or commands that the call waits
// for.
func (m *model) command(at flow, r *trace.Record) (outcome, error) {
	out := outcome{flow: at}
	for _, event := range r.Waits {
		if e := m.events.get(r.Process, event); e != nil {
			m.e.Raise(out.head, e.at)
			m.e.Raise(out.tail, e.at)
			out.recorded = max(out.recorded, e.recorded)
		}
	}
	if r.Queue == 0 {
		if r.Event != 0 {
			m.events.set(m.e, r, out)
		}
		return out, nil
	}
	q, err := m.queue(r)
	switch {
	case err != nil:
		return out, err
	case r.Command:
		return m.enqueue(q, out, r)
	case waits(r) && len(r.Waits) == 0:
		m.e.Raise(out.head, q.all)
		m.e.Raise(out.tail, q.all)
		out.recorded = q.recorded
	}
	return out, nil
}

// enqueue adds the execution of a command after the earlier commands of its queue. A large write runs
// while its bytes arrive, and the pieces of a large read are available while it runs.
func (m *model) enqueue(q *queue, in outcome, r *trace.Record) (outcome, error) {
	lag, other := pause(m, q, in, r)
	if r.HasDeviceTime() {
		q.recorded = max(q.recorded, r.Start+r.DeviceTime)
	}
	busy := deviceWork(m, r)
	m.caller.device.Use(busy)
	m.work.device += busy
	others, err := q.share.contend(m, q.on, in.head, deviceBusy(m, r))
	if err != nil {
		return in, err
	}
	work := ns(r.DeviceTime) + others
	first := firstRead(m, work, r)
	head, tail := m.point(), m.point()
	if in.head == in.tail && first == work {
		m.e.Add(cost.Task{On: q.on, After: [2]cost.Point{in.tail, other}, Cost: ns(lag) + work, Done: tail})
		head = tail
	} else {
		m.e.Add(cost.Task{On: q.on, After: [2]cost.Point{in.head, other}, Cost: ns(lag) + first, Done: head})
		m.e.Add(cost.Task{On: q.on, Cost: work - first})
		m.e.Add(cost.Task{On: q.on, After: [2]cost.Point{in.tail}, Done: tail})
	}
	q.share.enqueued(m, q.on, tail)
	m.commands.completed(m, q, r, tail)
	out := outcome{flow{head, tail}, q.recorded}
	if r.HasDeviceTime() {
		out.recorded = r.Start + r.DeviceTime
	}
	if r.Event != 0 {
		m.events.set(m.e, r, out)
	}
	if q.several {
		m.e.Raise(q.all, tail)
	}
	return out, nil
}

// submitted returns when the device had the command in the recording, in ns.
func submitted(h *trace.Header, r *trace.Record) int64 {
	before, _ := issue(h, r)
	return called(h, r) + before
}

// returning returns how long the driver took, in the recording, to return after the event that the
// call waited for: all of the call if the device's times are not known.
func returning(h *trace.Header, done outcome, r *trace.Record) int64 {
	back := r.End
	if h.Mode == trace.Remote {
		back -= r.WireBackward
	}
	return max(0, back-max(called(h, r), done.recorded))
}

// returned adds the return of a driver's call that waits for the device, and returns when its
// answer is available.
func (m *model) returned(t *thread, r *trace.Record, done outcome) flow {
	at, ready := done.flow, m.point()
	back := ns(returning(m.header, done, r))
	if m.header.Mode == trace.Local {
		back += cost.Of(m.c.Wait)
	}
	m.e.Add(cost.Task{On: t.reply, After: [2]cost.Point{at.tail}, Cost: back, Done: ready})
	if at.head == at.tail {
		at.head = ready
	}
	at.tail = ready
	return at
}

// answer sends the answer of a call, whose thread continues when it arrives.
func (m *model) answer(t *thread, r *trace.Record, at flow) error {
	at, err := m.wakeUp(&m.links.downWakes, at, m.idle.beforeAnswer(r), true)
	if err != nil {
		return err
	}
	there := m.send(&m.down, at, max(r.Backward, answerBytes)+framing)
	m.e.Wait(t.on, there.tail)
	m.up.waited()
	m.down.waited()
	t.pending += cost.Of(m.c.Receive)
	m.synchronize(t)
	return nil
}

// synchronize records that the thread has waited for its messages: the processors have done their
// work.
func (m *model) synchronize(t *thread) {
	t.client.Synchronize(t.on)
	if t.device != t.client {
		t.device.Synchronize(t.on)
	}
}

// execute adds the tasks of a call in a run without forwarding.
func (m *model) execute(t *thread, r *trace.Record) error {
	length := r.Duration() // of the call, without waits
	switch {
	case m.header.Mode == trace.Remote && r.Class != trace.AnsweredLocally:
		length = r.Execute
	case waits(r):
		length = min(r.Execute, length)
	}
	if r.Queue == 0 && len(r.Waits) == 0 && r.Event == 0 {
		t.pending += ns(length)
		return nil
	}
	before, _ := issue(m.header, r)
	before = min(before, length)
	t.pending += ns(before)
	issued := m.run(t)
	done, err := m.command(flow{issued, issued}, r)
	if err != nil {
		return err
	}
	if !waits(r) {
		t.pending += ns(length - before)
		return nil
	}
	m.e.Wait(t.on, done.tail)
	t.pending += ns(returning(m.header, done, r))
	m.synchronize(t)
	return nil
}

// queue returns the queue of a record.
func (m *model) queue(r *trace.Record) (*queue, error) {
	key := queueKey{r.Process, r.Queue}
	if q := m.queues[key]; q != nil {
		q.used = r.End
		return q, nil
	}
	on, err := queueResource(m)
	if err != nil {
		return nil, err
	}
	q := &queue{
		recency: newRecency(m, r), on: on, device: r.Device, all: m.e.Free(on), share: m.links.deviceShare(m, &m.header.Devices[r.Device]),
	}
	if r.OutOfOrder {
		q.all, q.several = m.e.Point(), true
	}
	m.queues[key] = q
	m.commands.opened(m, q, r.Device)
	return q, nil
}

// queueResource returns the resource of a new queue.
func queueResource(m *model) (cost.Resource, error) {
	if len(m.queues) < maxQueues {
		return m.e.Resource(cost.Profile{Slowdown: m.l.device})
	}
	old := removeIdlest(m.queues)
	m.commands.closed(old)
	if old.several {
		m.e.Wait(old.on, old.all)
		m.e.Release(old.all)
	}
	return old.on, nil
}
