package opencl

import (
	"encoding/binary"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// call is a message that is being executed by the driver. Its methods convert the message's fields
// to the driver's arguments; the first field that can't be converted sets the status of the call.
type call struct {
	caller *caller
	m      *session.Message
	frame  *driver.Frame
	status int32
	broken error // the client broke the protocol

	queue *queue
	event uint64 // id of the event that the command creates
	// unnamed reports that the client has no id for the command's event.
	unnamed bool
	// timed reports that the command's event is created only for its times.
	timed bool
	// profiled reports that the created queue gets profiling that the client did not ask for.
	profiled bool
	object   uint64 // id of the object that the call creates

	eventOut, errOut []byte
	outs             [4][]byte
	outCount         int
	body             []byte // of the reply
}

func (c *call) fail(status int32) uintptr {
	if c.status == clSuccess {
		c.status = status
	}
	return 0
}

// memory returns n bytes that the driver may use during the call.
func (c *call) memory(n int) []byte {
	b, err := c.frame.Bytes(n)
	if err != nil {
		c.fail(clOutOfHostMemory)
		return nil
	}
	return b
}

// optional returns the handle of an id, or NULL for id 0, where the API gives NULL a meaning.
func (c *call) optional(kind session.Kind, id uint64) uintptr {
	if id == 0 {
		return 0
	}
	return c.handle(kind, id)
}

// handle returns the handle of an object.
func (c *call) handle(kind session.Kind, id uint64) uintptr {
	if len(c.caller.objects.creating) > 0 {
		c.caller.objects.await(id)
	}
	e, ok := c.caller.objects.table.Get(id, kind)
	switch {
	case !ok:
		return c.fail(invalid[kind])
	case e.Failed != 0:
		return c.fail(e.Failed)
	}
	switch kind {
	case kindQueue:
		c.caller.queues.waitForTransfer(id)
		c.queue = c.caller.queues.byID[id]
	case kindEvent:
		if c.caller.events.hasFailed(id) {
			// The client learns of the failure before it learns of the refusal.
			c.caller.client.fail(c.caller.events.synchronize())
			return c.fail(clExecStatusError)
		}
	}
	return e.Handle
}

// handles returns the address of an array of handles, NULL when there are none.
func (c *call) handles(kind session.Kind, ids []uint64) uintptr {
	if len(ids) == 0 {
		return 0
	}
	b := c.memory(8 * len(ids))
	if b == nil {
		return 0
	}
	for i, id := range ids {
		h := c.handle(kind, id)
		if h == 0 {
			return c.fail(invalid[kind])
		}
		binary.LittleEndian.PutUint64(b[8*i:], uint64(h))
	}
	return driver.Address(b)
}

func (c *call) words(words []uint64) uintptr {
	if words == nil {
		return 0
	}
	return c.array(words, 0)
}

// props returns the address of a list of properties with a closing zero, whether or not the client
// sent the zero.
func (c *call) props(words []uint64) uintptr {
	if c.m.Op == opClCreateCommandQueueWithProperties && c.caller.tracer.on {
		words, c.profiled = withProfiling(words)
	}
	if words == nil {
		return 0
	}
	return c.array(words, 1)
}

func (c *call) array(words []uint64, zeros int) uintptr {
	b := c.memory(8 * (len(words) + zeros))
	if b == nil {
		return 0
	}
	for i, v := range words {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return driver.Address(b)
}

// bytes passes the address of the body's own memory, which is outside Go's heap.
func (c *call) bytes(b []byte) uintptr {
	if b == nil {
		return 0
	}
	return driver.Address(b)
}

// exactWords returns the address of an array of which the driver reads exactly n elements.
func (c *call) exactWords(words []uint64, n int) uintptr {
	if len(words) != n {
		return c.fail(clInvalidValue)
	}
	return c.array(words, 0)
}

// exactBytes returns the address of bytes of which the driver reads exactly n.
func (c *call) exactBytes(b []byte, n int) uintptr {
	if len(b) != n {
		return c.fail(clInvalidValue)
	}
	return driver.Address(b)
}

// required returns the address for an argument that must not be NULL: some drivers do not check.
func (c *call) required(b []byte) uintptr {
	if b == nil {
		return c.fail(clInvalidValue)
	}
	return driver.Address(b)
}

func (t text) required(c *call) text {
	if !t.present {
		c.fail(clInvalidValue)
	}
	return t
}

func (c *call) text(t text) uintptr {
	if !t.present {
		return 0
	}
	b := c.memory(len(t.value) + 1)
	copy(b, t.value)
	return driver.Address(b)
}

// commandEvent returns the address where the driver stores the event of a command, NULL for no
// event. While a user event can still fail it is never NULL: PoCL releases a failed command whose
// event has no other reference, and then reads it once more.
func (c *call) commandEvent(_ session.Kind, id uint64) uintptr {
	if id == 0 && len(c.caller.events.unresolved) > 0 {
		c.unnamed = true
		return c.newEvent()
	}
	if id == 0 && c.caller.tracer.on {
		c.timed = true
		return c.newEvent()
	}
	return c.clientEvent(id)
}

// clientEvent returns the address where the driver stores an event for which the client has an id,
// NULL for id 0.
func (c *call) clientEvent(id uint64) uintptr {
	if id == 0 {
		return 0
	}
	c.event = id
	return c.newEvent()
}

func (c *call) newEvent() uintptr {
	c.eventOut = c.memory(8)
	return driver.Address(c.eventOut)
}

func (c *call) errcode() uintptr {
	c.errOut = c.memory(8)
	return driver.Address(c.errOut)
}

func (c *call) outWord() uintptr {
	b := c.memory(8)
	c.outs[c.outCount] = b
	c.outCount++
	return driver.Address(b)
}

func (c *call) out(i int) uint64 { return firstWord(c.outs[i]) }

// firstWord returns the word at the start of b, 0 when b is shorter.
func firstWord(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}
