package opencl

import (
	"encoding/binary"
	"slices"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// A call is a message on its way into the driver. Its methods turn the fields
// of the message into the driver's arguments; the first that can't be sets the
// status that the call then has.
type call struct {
	w      *Worker
	m      *session.Message
	frame  *driver.Frame
	status int32
	broken error // the client broke the protocol

	queue *queue
	event uint64 // to be made by a command
	// nameless says that the command's event is ours alone.
	nameless bool
	object   uint64 // to be made by a creation

	eventOut, errOut []byte
	outs             [4][]byte
	outCount         int
	body             []byte // for the reply
}

// begin starts the next call of the dispatcher.
func (w *Worker) begin(m *session.Message) *call {
	w.frame.Reset()
	w.call = call{w: w, m: m, frame: w.frame}
	return &w.call
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
	if len(c.w.making) > 0 {
		c.w.await(id)
	}
	e, ok := c.w.objects.Get(id, kind)
	switch {
	case !ok:
		return c.fail(invalid[kind])
	case e.Failed != 0:
		return c.fail(e.Failed)
	}
	switch kind {
	case kindQueue:
		c.w.settleQueue(id)
		c.queue = c.w.queues[id]
	case kindEvent:
		if c.w.failedMeanwhile(id) {
			// Whoever hears of the refusal knows why: the failure is told first.
			c.w.fault(c.w.synchronised())
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

// exactWords and exactBytes are what a driver reads a known number of.
func (c *call) exactWords(words []uint64, n int) uintptr {
	if len(words) != n {
		return c.fail(clInvalidValue)
	}
	return c.array(words, 0)
}

func (c *call) exactBytes(b []byte, n int) uintptr {
	if len(b) != n {
		return c.fail(clInvalidValue)
	}
	return driver.Address(b)
}

// given are bytes that must not be absent: there are drivers that do not check.
func (c *call) given(b []byte) uintptr {
	if b == nil {
		return c.fail(clInvalidValue)
	}
	return driver.Address(b)
}

func (t text) given(c *call) text {
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

// created is where the driver puts the event of a command, NULL for none. While
// a user event can still fail it is never NULL: PoCL forgets a command that fails
// and that nobody holds, and then looks at it once more.
func (c *call) created(_ session.Kind, id uint64) uintptr {
	if id == 0 && len(c.w.unresolved) > 0 {
		c.nameless = true
		return c.newEvent()
	}
	return c.wanted(id)
}

// wanted is where the driver puts the client's event, NULL for none.
func (c *call) wanted(id uint64) uintptr {
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

func (c *call) out(i int) uint64 { return word(c.outs[i]) }

// word is the word at the start of b, 0 when there is none.
func word(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// invoke calls a function that returns its status, and takes charge of the
// event that it makes.
func (w *Worker) invoke(c *call, fn int, args ...uintptr) int32 {
	switch {
	case c.status != clSuccess:
		return c.status
	case !w.drv.Has(fn):
		return clInvalidOperation
	case !isCommand[fn]:
		return int32(w.drv.Call(fn, args...))
	}
	if !w.submit(c) {
		return c.status
	}
	status := int32(w.drv.Call(fn, args...))
	if status == clSuccess {
		w.submitted(c)
	} else {
		w.unsubmit()
	}
	return status
}

// create calls a function that returns a new object. The last argument is where
// its status goes.
func (w *Worker) create(c *call, fn int, kind session.Kind, id uint64, args ...uintptr) int32 {
	c.object = id
	handle, status := uintptr(0), c.status
	switch {
	case status != clSuccess:
	case !w.drv.Has(fn):
		status = clInvalidOperation
	case !w.room(costOf(kind)):
		status = clOutOfHostMemory
	default:
		handle = w.drv.Call(fn, args...)
		status = int32(uint32(word(c.errOut)))
		if handle == 0 && status == clSuccess {
			status = clOutOfResources
		}
		w.host.give(costOf(kind)) // enter counts it
	}
	w.enter(c, kind, id, handle, status)
	return status
}

// costOf is what the budget counts for an object.
func costOf(kind session.Kind) int64 {
	if kind == kindProgram {
		return programCost
	}
	return objectCost
}

// enter puts a new object into the table; one that failed keeps its reason.
func (w *Worker) enter(c *call, kind session.Kind, id uint64, handle uintptr, status int32) {
	e := session.Entry{Kind: kind, Handle: handle}
	if status != clSuccess {
		e = session.Entry{Kind: kind, Failed: status}
	}
	if err := w.objects.Add(id, e); err != nil {
		c.broken = err
		return
	}
	if e.Handle != 0 {
		w.host.force(costOf(kind))
	}
	if status == clSuccess && kind == kindQueue {
		w.addQueue(c, id, handle)
	}
}

// query asks for a value of unknown size.
func (w *Worker) query(c *call, fn int, args ...uintptr) (int32, []byte) {
	if c.status != clSuccess {
		return c.status, nil
	}
	status, value := ask(w.drv, c.frame, fn, args...)
	if fn == fnClGetDeviceInfo && status == clSuccess && len(args) > 1 {
		value = w.adjust(uint32(args[1]), value)
	}
	return status, value
}

// list asks for an array whose elements have the given size.
func (w *Worker) list(c *call, fn, element int, args ...uintptr) (int32, []byte) {
	switch {
	case c.status != clSuccess:
		return c.status, nil
	case !w.drv.Has(fn):
		return clInvalidOperation, nil
	}
	count := c.memory(8)
	status := int32(w.drv.Call(fn, append(slices.Clip(args), 0, 0, driver.Address(count))...))
	n := binary.LittleEndian.Uint32(count)
	if status != clSuccess || n == 0 {
		return status, []byte{}
	}
	b := c.memory(int(n) * element)
	return int32(w.drv.Call(fn, append(slices.Clip(args), uintptr(n), driver.Address(b), 0)...)), b
}
