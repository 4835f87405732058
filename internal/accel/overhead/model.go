package overhead

import (
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// model turns the records of one program into tasks.
type model struct {
	e      *cost.Evaluator
	l      *lanes
	c      Constants
	whatIf WhatIf
	// direct is a run without forwarding: calls execute on the program's threads.
	direct bool
	header *trace.Header

	links   *links
	threads map[threadKey]*thread
	// processes are those of which there was a call.
	processes map[uint32]bool
	caller    *thread // the thread whose call is being added
	latest    *thread // the thread whose call ended last
	workers   map[workerKey]*worker
	queues    map[queueKey]*queue
	events    eventTable
	known     completionTracker
	// commands are those that commands of other queues waited for.
	commands commandTable
	// cores are the devices' processors, and alone each device as a whole.
	cores, alone [maxDevices]deviceCores
	scratch      [16]cost.Point
	next         int
	idle         idleness
	// second delays waits after other messages, cold the first command after a pause.
	second, cold wakes
	// up and down are the program's streams.
	up, down direction
	// due is an answer that is not sent yet; nil for a program alone.
	due *dueAnswer
	// start and open have the latencies of the round trips of the start, and of those that the
	// opening of the session waits for.
	start    cost.Resource
	open     cost.Resource
	creates  []bool    // by op: the call creates an object
	builds   []bool    // by op: the call compiles kernels
	watchers []bool    // by op: the call polls an event, or has a callback called
	traffic  []Traffic // by op
	work     work
	// made counts threads, sessions and queues.
	made int
}

type threadKey struct{ process, thread uint32 }

// The threads, sessions and queues that a prediction keeps at a time: see [recency].
const (
	maxThreads = 512
	maxQueues  = 512
	maxWorkers = 512
	// maxProcesses bounds those that are known; the sessions of more are not counted.
	maxProcesses = 1 << 16
)

type workerKey struct {
	process uint32
	device  uint8
}

type queueKey struct {
	process uint32
	id      uint64
}

// worker executes the messages of a session.
type worker struct {
	recency
	on cost.Resource
}

// thread is a thread of the program.
type thread struct {
	on, reply cost.Resource
	// client and device are the thread's shares of the two machines' processors; they are the same
	// if the machines are.
	client, device *cost.Share
	// pending is the time of the program, and of calls answered locally, that no task covers yet.
	pending cost.Time
	// end is when the thread's last call ended in the recording, in ns.
	end     int64
	polling polling
	number  int
}

func (t *thread) lastUse() recency { return recency{t.end, t.number} }

// queue is a command queue of the device.
type queue struct {
	recency
	on     cost.Resource
	device uint8
	// all is when every command so far is complete. It is the resource's own point, unless commands
	// overtake each other.
	all     cost.Point
	several bool
	share   *deviceShare // nil unless other programs use the device
	// recorded is when the last command was complete in the recording, in ns.
	recorded int64
}

func newModel(e *cost.Evaluator, l *lanes, s *settings, shared *links, header *trace.Header) (*model, error) {
	m := &model{
		e: e, l: l, c: s.Constants, whatIf: s.WhatIf, direct: s.direct, header: header, links: shared,
		threads: map[threadKey]*thread{}, processes: map[uint32]bool{}, workers: map[workerKey]*worker{}, queues: map[queueKey]*queue{},
		creates: creations(header), builds: builds(header), watchers: watchers(header), traffic: make([]Traffic, len(header.Ops)),
	}
	m.second.latencies = l.second
	m.cold.latencies = s.Constants.coldCommands(l, header)
	m.events.init()
	m.known.init()
	for i := range m.scratch {
		m.scratch[i] = e.Point()
	}
	if err := newStart(m, header.Mode); err != nil {
		return nil, err
	}
	var err error
	trip := cost.Profile{}
	for _, half := range l.latency {
		trip.Latency = append(trip.Latency, 2*half)
	}
	if m.up, err = newDirection(e, shared.up, shared.upBucket, trip); err != nil {
		return nil, err
	}
	m.down, err = newDirection(e, shared.down, shared.downBucket, trip)
	return m, err
}

// point returns a point that is used within one call.
func (m *model) point() cost.Point {
	m.next = (m.next + 1) % len(m.scratch)
	return m.scratch[m.next]
}

func ns(v int64) cost.Time { return cost.Of(time.Duration(v)) }

// longest bounds the times of a record, in ns, so that the sum of a few does not overflow: the
// evaluator refuses runs of that length as well.
const longest = int64(50 * 24 * time.Hour)

func tooLong(r *trace.Record) bool {
	for _, at := range [...]int64{r.Begin, r.End, r.Start} {
		if at < -longest || at > longest {
			return true
		}
	}
	for _, d := range [...]int64{r.Gap, r.Duration(), r.Encode, r.WireForward, r.Execute, r.WireBackward, r.Blocked, r.DeviceTime} {
		if d > longest/2 {
			return true
		}
	}
	return false
}

// add adds a record's tasks.
func (m *model) add(r *trace.Record) error {
	if tooLong(r) {
		return cost.ErrTooLong
	}
	first, further := len(m.threads) == 0, beginsProcess(m, r)
	t, err := m.thread(r, further)
	if err != nil {
		return err
	}
	m.caller = t
	again, notice := followPolls(m, t, r), noticed(m, r)
	if !again && notice == nil {
		m.couple(t, r)
		t.pending += ns(r.Gap)
	}
	switch {
	case first && m.direct:
		loadDriver(m, t)
	case first:
		openSession(m, t)
	case further && !m.direct:
		openFurtherSession(m, t, r)
	}
	class := m.class(r)
	if class != trace.AnsweredLocally && m.known.answersLocally(r) && m.header.Mode == trace.Local && !m.whatIf.NoLocality {
		class = trace.AnsweredLocally
	}
	m.traffic[r.Op].add(r, class)
	switch {
	case again: // the thread waits
	case notice != nil:
		err = awaitNotice(m, t, r, notice)
	case m.direct:
		err = m.execute(t, r)
	case class == trace.AnsweredLocally:
		t.pending += m.onThread(r, class)
	default:
		err = m.forward(t, r, class)
	}
	t.end = r.End
	if m.latest == nil || t.end >= m.latest.end {
		m.latest = t
	}
	if err == nil && t.pending > ns(longest) {
		err = cost.ErrTooLong
	}
	return err
}

// class returns the class of a call under the optimisations that are on. Without locality a query,
// or a wait for commands known to be complete, is a round trip, and an argument that the kernel
// already has is sent again.
func (m *model) class(r *trace.Record) trace.Class {
	class := r.Class
	if class == trace.AnsweredLocally && m.whatIf.NoLocality && !r.Failed {
		class = withoutLocality(&m.header.Ops[r.Op])
	}
	if class == trace.Early && (m.whatIf.NoAsync || m.whatIf.NoShadow && m.creates[r.Op]) {
		return trace.WaitedFor
	}
	return class
}

// withoutLocality returns the class, without locality, of a call that the driver library would
// answer by itself. Reference counting stays local.
func withoutLocality(op *trace.Op) trace.Class {
	switch {
	case op.Answer == "cached", op.Answer == "wait":
		return trace.WaitedFor
	case op.Name == "clSetKernelArg":
		return trace.Early
	}
	return trace.AnsweredLocally
}

// onThread returns how long a call keeps its thread busy, without waits.
func (m *model) onThread(r *trace.Record, forwarded trace.Class) cost.Time {
	_, open := m.workers[workerKey{r.Process, r.Device}]
	opens := !open && m.header.Mode == trace.Remote
	busy := ns(max(0, r.Duration()-r.Blocked))
	switch {
	case m.header.Mode == trace.Local && forwarded == trace.AnsweredLocally:
		return min(busy, cost.Of(m.c.Local))
	case m.header.Mode == trace.Local || r.Class == trace.AnsweredLocally && forwarded != r.Class:
		return cost.Of(m.c.Encode) + m.c.copying(r.Forward)
	case opens:
		return cost.Of(m.c.Encode) // the rest of the call opened the session: StartUp
	case r.Class == trace.WaitedFor:
		return ns(r.Encode)
	}
	return busy
}

// copying returns how long the driver library takes to copy bytes.
func (c *Constants) copying(bytes uint64) cost.Time {
	return cost.Time(float64(bytes) / c.CopyRate * float64(cost.Second))
}

// run adds a task for the thread's pending time, and returns its completion.
func (m *model) run(t *thread) cost.Point {
	done := m.point()
	t.client.Use(t.pending)
	m.work.program += t.pending
	m.e.Add(cost.Task{On: t.on, Cost: t.pending, Done: done})
	t.pending = 0
	return done
}

// thread returns the thread of a record. A new thread begins with the program, or after the latest
// call of another thread; further says that it is the first of another process.
func (m *model) thread(r *trace.Record, further bool) (*thread, error) {
	key := threadKey{r.Process, r.Thread}
	if t := m.threads[key]; t != nil {
		return t, nil
	}
	t, err := newThread(m, r)
	if err != nil {
		return nil, err
	}
	m.made++
	t.number = m.made
	m.threads[key] = t
	load := cost.Time(0)
	if further {
		load = driverLoad(m)
	}
	if noticed(m, r) != nil {
		return t, nil // it begins with the notice
	}
	if len(m.threads) > 1 && m.latest.end <= r.Begin {
		m.waitFor(t, m.latest, r, load)
		return t, nil
	}
	t.pending = max(0, t.pending+ns(t.end)+load)
	return t, nil
}

// newThread returns a new thread. Beyond the bound it continues the thread that has been idle the
// longest, which has ended in programs that start many.
func newThread(m *model, r *trace.Record) (*thread, error) {
	if len(m.threads) < maxThreads {
		return m.links.newThread(m.l, max(0, r.Begin-r.Gap))
	}
	old := removeIdlest(m.threads)
	if old.end > r.Begin {
		return nil, tooMany("threads at the same time", maxThreads)
	}
	r.Gap = min(r.Gap, r.Begin-old.end)
	return &thread{on: old.on, reply: old.reply, client: old.client, device: old.device, pending: old.pending}, nil
}

// newThread returns a thread whose last call ended at a time of the recording, in ns.
func (k *links) newThread(l *lanes, end int64) (t *thread, err error) {
	t = &thread{end: end}
	if t.on, err = k.e.Resource(cost.Profile{Slowdown: l.program}); err != nil {
		return nil, err
	}
	if t.reply, err = k.e.Resource(cost.Profile{Slowdown: l.driver}); err != nil {
		return nil, err
	}
	if t.client, err = k.client.Share(); err != nil {
		return nil, err
	}
	t.device = t.client
	if k.device != k.client {
		t.device, err = k.device.Share()
	}
	return t, err
}

// waitRatio distinguishes waits for another thread from work: a gap counts as a wait if it is at
// least this many times as long as the time since the other thread's last call.
const waitRatio = 10

// leastWait is the shortest gap that counts as a wait, in ns.
const leastWait = 50_000

// couple finds gaps in which a thread waited for another thread's call: programs hand work from
// thread to thread, and the recording does not show how.
func (m *model) couple(t *thread, r *trace.Record) {
	u := m.latest
	if u == nil || u == t || u.end > r.Begin || u.end <= r.Begin-r.Gap || r.Gap < leastWait {
		return
	}
	if r.Gap >= waitRatio*(r.Begin-u.end) {
		m.waitFor(t, u, r, 0)
	}
}

// waitFor makes t begin the record's call as long after u's last call as in the recording, and longer by
// more, instead of after its own gap.
func (m *model) waitFor(t, u *thread, r *trace.Record, more cost.Time) {
	begins := m.point()
	m.e.Add(cost.Task{On: t.reply, After: [2]cost.Point{m.run(u)}, Cost: max(0, ns(r.Begin-u.end)+more), Done: begins})
	m.run(t)
	m.e.Wait(t.on, begins)
	r.Gap = 0
}

// now returns when the thread whose call ended last continues, or when its answer is sent.
func (m *model) now() cost.Point {
	if m.latest == nil {
		return 0
	}
	if m.due != nil {
		return m.due.at.head
	}
	return m.e.Free(m.latest.on)
}

// end adds the time from the last call to the end of the program, and returns the program's end.
func (m *model) end(duration int64) cost.Point {
	if m.latest == nil {
		return 0
	}
	m.latest.pending += ns(max(0, duration-m.latest.end))
	last := m.e.Free(m.latest.on)
	for _, t := range m.threads {
		m.run(t)
		if t != m.latest {
			m.e.Raise(last, m.e.Free(t.on))
		}
	}
	return last
}
