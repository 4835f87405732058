package opencl

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// The kinds of entries that a worker sends of a recording. All times are ns of the worker's
// CLOCK_MONOTONIC. Numbers are varints, differences to the values of the message before.
const (
	// entryMessage: serial, time of its receipt, duration of its execution, part of that in which
	// the dispatcher waited for the rest of the message.
	entryMessage = 1
	// entryReply: serial, time when the reply was sent.
	entryReply = 2
	// entryDevice: serial, time when the device began to execute the command, duration.
	entryDevice = 3
)

// The bounds of a recording in a worker.
const (
	// flushEntries and flushIdle are the bytes at which the entries are sent, and at which they are
	// while the client sends nothing. Each message wakes a thread of the program. The driver
	// library accepts half of a chunk of its file, 32 KiB, at once.
	flushEntries = 16 << 10
	flushIdle    = 8 << 10
	// flushAge is the age at which entries are sent while the client sends nothing: a client that is
	// killed, or ends without the library's destructor, loses those that were not sent.
	flushAge          = 200 * time.Millisecond
	collectBatch      = 64
	maxTracedCommands = 1 << 16 // commands whose times are awaited
	maxUnreplied      = 1 << 16
)

// tracedCommand is a command whose times are read when it is complete.
type tracedCommand struct {
	serial uint64
	event  uintptr // retained
}

// tracer records the worker's handling of each message, for a trace. Only the dispatcher uses it,
// except replied, which helpers call as well.
type tracer struct {
	drv    *driver.Table
	client *client
	device *device
	events *events
	on     bool
	clock  fastClock

	commands []tracedCommand
	scratch  []byte

	mu        sync.Mutex
	full      [][]byte // earlier entries, flushEntries or a little more in each
	entries   []byte
	since     time.Duration // when the first of entries was made, on the worker's clock
	serial    uint64        // of the last message in entries
	received  int64
	unreplied map[uint32]uint64 // serials by call
}

// doRecord begins a recording, or ends it and sends its remaining entries.
func (w *Worker) doRecord(m *message, a *argsRecord) error {
	c := w.caller.begin(m)
	if err := w.caller.finish(c, clSuccess); err != nil {
		return err
	}
	if a.Enable != 0 {
		return w.tracer.start()
	}
	return w.tracer.stop()
}

func (r *tracer) start() (err error) {
	if r.on {
		return nil
	}
	if r.scratch == nil {
		if r.scratch, err = driver.Alloc(64); err != nil {
			return err
		}
	}
	r.on, r.clock, r.unreplied = true, newFastClock(), make(map[uint32]uint64)
	r.client.out.OnReply(r.replied)
	return nil
}

func (r *tracer) stop() error {
	r.collect(len(r.commands))
	for _, c := range r.commands {
		r.events.failed.release(c.event)
	}
	r.commands, r.on = nil, false
	r.client.out.OnReply(nil)
	return r.flush(true)
}

// step executes a message and records how long that took.
func (r *tracer) step(m *session.Message, execute func(*session.Message) error) error {
	received, waited := r.clock.now(), r.client.in.Waited()
	serial := m.Serial
	if m.Flags&session.WantReply != 0 {
		r.mu.Lock()
		if len(r.unreplied) < maxUnreplied {
			r.unreplied[m.Call] = serial
		}
		r.mu.Unlock()
	}
	err := execute(m)
	executed := r.clock.now() - received
	r.mu.Lock()
	r.append(entryMessage, serial, int64(received), uint64(executed), uint64(r.client.in.Waited()-waited))
	r.serial, r.received = serial, int64(received)
	full := len(r.full) > 0
	r.mu.Unlock()
	if err == nil && full {
		err = r.flush(false)
	}
	return err
}

// append appends an entry. The caller holds mu.
func (r *tracer) append(kind byte, serial uint64, at int64, durations ...uint64) {
	if len(r.entries) >= flushEntries {
		r.full = append(r.full, r.entries)
		r.entries, r.serial, r.received = nil, 0, 0
	}
	if len(r.entries) == 0 {
		r.since = r.clock.now()
	}
	r.entries = append(r.entries, kind)
	r.entries = binary.AppendVarint(r.entries, int64(serial-r.serial))
	r.entries = binary.AppendVarint(r.entries, at-r.received)
	for _, d := range durations {
		r.entries = binary.AppendUvarint(r.entries, d)
	}
}

// rest collects and sends entries. It is called when the client has sent nothing more.
func (r *tracer) rest() error {
	r.collect(len(r.commands))
	r.mu.Lock()
	enough := r.enough(r.clock.now())
	r.mu.Unlock()
	if !enough {
		return nil
	}
	return r.flush(false)
}

// enough reports whether the entries are to be sent while the client sends nothing: there are many
// of them, or they are old. The caller holds mu.
func (r *tracer) enough(now time.Duration) bool {
	return len(r.full) > 0 || len(r.entries) >= flushIdle || len(r.entries) > 0 && now-r.since >= flushAge
}

// flush sends the entries. The last message says that it is the last one.
func (r *tracer) flush(last bool) error {
	r.mu.Lock()
	parts := slices.Concat(r.full, [][]byte{r.entries})
	r.full, r.entries, r.serial, r.received = nil, nil, 0, 0
	r.mu.Unlock()
	for i, part := range parts {
		n := argsRecorded{Entries: part}
		if last && i == len(parts)-1 {
			n.Last = 1
		}
		if err := r.client.notify(opRecorded, n.encode(nil)); err != nil {
			return err
		}
	}
	return nil
}

// replied records that a reply is sent. Any goroutine may call it.
func (r *tracer) replied(call uint32) {
	now := int64(r.clock.now())
	r.mu.Lock()
	defer r.mu.Unlock()
	serial, ok := r.unreplied[call]
	if !ok {
		return
	}
	delete(r.unreplied, call)
	r.append(entryReply, serial, now)
}

// command has the times of a command recorded. The event is retained unless the tracer owns it
// already.
func (r *tracer) command(serial uint64, event uintptr, owned bool) {
	if len(r.commands) >= maxTracedCommands {
		r.collect(len(r.commands))
	}
	if len(r.commands)%collectBatch == collectBatch-1 {
		r.collect(collectBatch)
	}
	if event == 0 {
		return
	}
	if !owned {
		r.drv.Call(fnClRetainEvent, event)
	}
	if len(r.commands) >= maxTracedCommands {
		r.events.failed.release(event)
		return
	}
	r.commands = append(r.commands, tracedCommand{serial, event})
}

// collect records the times of the complete commands among the oldest n.
func (r *tracer) collect(n int) {
	n = min(n, len(r.commands))
	kept := r.commands[:0]
	for _, c := range r.commands[:n] {
		if !r.record(c) {
			kept = append(kept, c)
		}
	}
	r.commands = append(kept, r.commands[n:]...)
}

// record records the times of a command and releases its event, or returns false while the command
// is not complete.
func (r *tracer) record(c tracedCommand) bool {
	status := int32(-1)
	if v, ok := r.info(fnClGetEventInfo, c.event, clEventExecutionStatus, 4); ok {
		status = int32(uint32(v))
	}
	if status > clComplete {
		return false
	}
	start, hasStart := r.info(fnClGetEventProfilingInfo, c.event, clProfilingCommandStart, 8)
	end, hasEnd := r.info(fnClGetEventProfilingInfo, c.event, clProfilingCommandEnd, 8)
	r.events.failed.release(c.event)
	if status != clComplete || !hasStart || !hasEnd || end < start {
		return true
	}
	times := [2]uint64{start, end}
	r.events.pending.mu.Lock() // it guards the clock
	r.device.clock.toMonotonic(times[:])
	r.events.pending.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.append(entryDevice, c.serial, int64(times[0]), times[1]-times[0])
	return true
}

func (r *tracer) info(fn int, event uintptr, param, size uintptr) (uint64, bool) {
	clear(r.scratch[:8])
	status := int32(r.drv.Call(fn, event, param, size, driver.Address(r.scratch), 0))
	return firstWord(r.scratch), status == clSuccess
}

// withProfiling returns the properties of a queue with profiling added, and whether it was added.
// The properties of a queue on the device, or properties that only such a queue may have, stay as
// they are.
func withProfiling(list []uint64) (with []uint64, added bool) {
	for i := 0; i+1 < len(list) && list[i] != 0; i += 2 {
		if list[i] != clQueueProperties {
			return list, false
		}
	}
	for i := 0; i+1 < len(list) && list[i] != 0; i += 2 {
		if list[i] != clQueueProperties {
			continue
		}
		if list[i+1]&(clQueueProfiling|clQueueOnDevice) != 0 {
			return list, false
		}
		with = slices.Clone(list)
		with[i+1] |= clQueueProfiling
		return with, true
	}
	return append([]uint64{clQueueProperties, clQueueProfiling}, list...), true
}
