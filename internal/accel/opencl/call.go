package opencl

import (
	"encoding/binary"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// call is a message on its way into the driver. Its methods turn the fields
// of the message into the driver's arguments; the first that can't be sets the
// status that the call then has.
type call struct {
	caller *caller
	m      *session.Message
	frame  *driver.Frame
	status int32
	broken error // the client broke the protocol

	queue *queue
	event uint64 // to be made by a command
	// unnamed: the client has no id for the command's event.
	unnamed bool
	// timed: the command's event is made for its times alone.
	timed bool
	// profiled: the queue that is made gets profiling which the client did not ask for.
	profiled bool
	object   uint64 // to be made by a creation

	eventOut, errOut []byte
	outs             [4][]byte
	outCount         int
	body             []byte // for the reply
}

func (c *call) fail(status int32) uintptr {
	if c.status == clSuccess {
		c.status = status
	}
	return 0
}

// memory is n bytes that the driver may use during the call.
func (c *call) memory(n int) []byte {
	b, err := c.frame.Bytes(n)
	if err != nil {
		c.fail(clOutOfHostMemory)
		return nil
	}
	return b
}

// optional is handle for where the API has a meaning for NULL, which is id 0.
func (c *call) optional(kind session.Kind, id uint64) uintptr {
	if id == 0 {
		return 0
	}
	return c.handle(kind, id)
}

// handle looks an object up.
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

// handles is an array of handles, NULL when there are none.
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

// props is a list with a closing zero, whether the client sent that or not.
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

// bytes hands on the body's own memory, which is outside Go's heap.
func (c *call) bytes(b []byte) uintptr {
	if b == nil {
		return 0
	}
	return driver.Address(b)
}

// exactWords is an array of which the driver reads exactly n elements.
func (c *call) exactWords(words []uint64, n int) uintptr {
	if len(words) != n {
		return c.fail(clInvalidValue)
	}
	return c.array(words, 0)
}

// exactBytes is bytes of which the driver reads exactly n.
func (c *call) exactBytes(b []byte, n int) uintptr {
	if len(b) != n {
		return c.fail(clInvalidValue)
	}
	return driver.Address(b)
}

// required is bytes for an argument that must not be NULL: some drivers do not check.
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

// commandEvent is where the driver puts the event of a command, NULL for none. While a user
// event can still fail it is never NULL: PoCL releases a failed command whose event has no
// other reference, and then reads it once more.
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

// clientEvent is where the driver puts an event that the client has an id for, NULL for id 0.
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

// firstWord is the word at the start of b, 0 when there is none.
func firstWord(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}
