package opencl

import (
	"encoding/binary"
	"slices"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// caller calls the driver for the current message: it translates ids to handles, reserves what the
// call needs, records the objects that it creates and answers the client. Only the dispatcher uses
// it.
type caller struct {
	drv    *driver.Table
	gate   Gate
	client *client
	frames *frames
	budget *budget

	device     *device
	objects    *objects
	events     *events
	queues     *queues
	hostMemory *hostMemory
	tracer     *tracer

	call call
}

// begin starts a call of the dispatcher.
func (k *caller) begin(m *session.Message) *call {
	k.frames.current.Reset()
	k.call = call{caller: k, m: m, frame: k.frames.current}
	return &k.call
}

// beginOwnFrame starts a call whose arguments outlive the dispatcher's frame.
func (k *caller) beginOwnFrame(m *message) *call {
	return &call{caller: k, m: m, frame: k.frames.get()}
}

// invoke calls a function that returns its status, and tracks the event that the function creates.
func (k *caller) invoke(c *call, fn int, args ...uintptr) int32 {
	switch {
	case c.status != clSuccess:
		return c.status
	case !k.drv.Has(fn):
		return clInvalidOperation
	case !isCommand[fn]:
		return int32(k.drv.Call(fn, args...))
	}
	if !k.submit(c) {
		return c.status
	}
	status := int32(k.drv.Call(fn, args...))
	if status == clSuccess {
		k.recordSubmit(c)
	} else {
		k.cancelSubmit()
	}
	return status
}

// create calls a function that returns a new object. The last argument is the address of its
// status.
func (k *caller) create(c *call, fn int, kind session.Kind, id uint64, args ...uintptr) int32 {
	c.object = id
	handle, status := uintptr(0), c.status
	switch {
	case status != clSuccess:
	case !k.drv.Has(fn):
		status = clInvalidOperation
	case !k.hostMemory.reserve(costOf(kind)):
		status = clOutOfHostMemory
	default:
		if fn == fnClCreateCommandQueue && k.tracer.on && len(args) > 2 && args[2]&clQueueProfiling == 0 {
			args[2] |= clQueueProfiling
			c.profiled = true
		}
		handle = k.drv.Call(fn, args...)
		status = int32(uint32(firstWord(c.errOut)))
		if handle == 0 && status == clSuccess {
			status = clOutOfResources
		}
		k.budget.release(costOf(kind)) // objects.add counts it
	}
	k.objects.add(c, kind, id, handle, status)
	if status == clSuccess && kind == kindQueue && c.broken == nil {
		k.queues.add(c, id, handle)
		if c.profiled {
			k.queues.byID[id].profiling = false
		}
	}
	return status
}

// costOf returns the bytes that the budget counts for an object.
func costOf(kind session.Kind) int64 {
	if kind == kindProgram {
		return programCost
	}
	return objectCost
}

// query returns a value of unknown size.
func (k *caller) query(c *call, fn int, args ...uintptr) (int32, []byte) {
	if c.status != clSuccess {
		return c.status, nil
	}
	status, value := query(k.drv, c.frame, fn, args...)
	if fn == fnClGetDeviceInfo && status == clSuccess && len(args) > 1 {
		value = k.device.adjustInfo(uint32(args[1]), value)
	}
	return status, value
}

// list returns an array whose elements have the given size.
func (k *caller) list(c *call, fn, element int, args ...uintptr) (int32, []byte) {
	switch {
	case c.status != clSuccess:
		return c.status, nil
	case !k.drv.Has(fn):
		return clInvalidOperation, nil
	}
	count := c.memory(8)
	status := int32(k.drv.Call(fn, append(slices.Clip(args), 0, 0, driver.Address(count))...))
	n := binary.LittleEndian.Uint32(count)
	if status != clSuccess || n == 0 {
		return status, []byte{}
	}
	b := c.memory(int(n) * element)
	return int32(k.drv.Call(fn, append(slices.Clip(args), uintptr(n), driver.Address(b), 0)...)), b
}

// submit must precede every command: it waits for the session's turn and reserves memory for the
// command. When there is no memory, the command fails.
func (k *caller) submit(c *call) bool {
	if k.gate != nil {
		k.gate.Submit()
	}
	if k.hostMemory.reserve(commandCost) {
		return true
	}
	c.fail(clOutOfHostMemory)
	return false
}

// cancelSubmit releases the reservation of a command that the driver refused.
func (k *caller) cancelSubmit() { k.budget.release(commandCost) }

// recordSubmit must follow every command that the driver accepted.
func (k *caller) recordSubmit(c *call) {
	q := c.queue
	if q == nil {
		k.cancelSubmit()
	} else {
		q.submitted++
		q.busy = true
		if !q.unflushed {
			q.unflushed = true
			k.queues.unflushed = append(k.queues.unflushed, q)
		}
	}
	if k.tracer.on && c.eventOut != nil {
		k.tracer.command(c.m.Serial, uintptr(firstWord(c.eventOut)), c.timed)
	}
	switch {
	case c.event != 0:
		k.addEvent(c, uintptr(firstWord(c.eventOut)))
	case c.unnamed:
		k.addOwnEvent(c, uintptr(firstWord(c.eventOut)))
	}
}

// addEvent tracks the event of a command of the client.
func (k *caller) addEvent(c *call, handle uintptr) {
	k.objects.add(c, kindEvent, c.event, handle, clSuccess)
	item := &pendingCommand{queue: c.queue, event: handle, id: c.event}
	item.recordPosition()
	k.events.pending.add(item)
}

// addOwnEvent tracks the event of a command for which the client has no event.
func (k *caller) addOwnEvent(c *call, handle uintptr) {
	item := &pendingCommand{queue: c.queue, event: handle, owned: true}
	item.recordPosition()
	k.events.pending.add(item)
}

// track tracks a submitted command, whose event is in eventOut.
func (k *caller) track(c *call, item *pendingCommand) {
	item.event = uintptr(firstWord(c.eventOut))
	id := c.event
	if id != 0 {
		k.objects.add(c, kindEvent, id, item.event, clSuccess)
	}
	c.event = 0 // added above
	k.recordSubmit(c)
	c.event = id
	item.recordPosition()
	k.events.pending.add(item)
}

// addFailedEvent adds the event of a command that could not be submitted. It has no handle:
// commands that wait for it fail here, since some drivers wait for ever for an event that had
// failed before.
func (k *caller) addFailedEvent(c *call) error {
	if err := k.objects.table.Add(c.event, session.Entry{Kind: kindEvent, Failed: clExecStatusError}); err != nil {
		return malformed(c.m, err)
	}
	return nil
}

// reply answers a call, or reports its failure when the client does not wait.
func (k *caller) reply(c *call, status int32, body []byte) error {
	if c.broken != nil {
		return malformed(c.m, c.broken)
	}
	if c.m.Flags&session.WantReply == 0 {
		return k.finish(c, status)
	}
	return k.client.answer(c.ticket(), status, body)
}

// finish ends a call that returns only its status.
func (k *caller) finish(c *call, status int32) error {
	switch {
	case c.broken != nil:
		return malformed(c.m, c.broken)
	case c.m.Flags&session.WantReply != 0:
		return k.client.answer(c.ticket(), status, nil)
	case status != clSuccess:
		return k.reportFailure(c, status)
	}
	return nil
}

// reportFailure reports the failure of a call for which the client does not wait. The event that
// the call would have created exists nevertheless, as failed: commands that wait for it fail too.
func (k *caller) reportFailure(c *call, status int32) error {
	n := argsFailed{Serial: c.m.Serial, Op: uint32(c.m.Op), Status: status, Event: c.event, Object: c.object}
	if c.queue != nil {
		n.Queue = c.queue.id
	}
	if c.event != 0 {
		if err := k.addFailedEvent(c); err != nil {
			return err
		}
	}
	return k.client.notify(opFailed, n.encode(nil))
}
