package opencl

import (
	"context"
	"encoding/binary"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// contexts holds the devices and forwards the error reports of the session's contexts.
type contexts struct {
	caller    *caller
	client    *client
	frames    *frames
	device    *device
	objects   *objects
	callbacks *driver.Callbacks

	byID   map[uint64]*contextState
	errors chan contextError
}

// deviceRef is a device by id and handle.
type deviceRef struct {
	id     uint64
	handle uintptr
}

// contextState is the dispatcher's state of a context.
type contextState struct {
	handle  uintptr
	devices []deviceRef
	token   uintptr // of the callback for its errors
	upload  uintptr // the worker's own queue, created when it is needed
}

func (cs *contexts) require(c *call, id uint64) {
	if cs.byID[id] != nil {
		return
	}
	if c.handle(kindContext, id); c.status == clSuccess {
		c.fail(invalid[kindContext])
	}
}

func (cs *contexts) devices(c *call, ids []uint64) []deviceRef {
	refs := make([]deviceRef, len(ids))
	for i, id := range ids {
		refs[i] = deviceRef{id, c.handle(kindDevice, id)}
	}
	return refs
}

func (cs *contexts) doClCreateContext(m *message, a *argsClCreateContext) error {
	c := cs.caller.begin(m)
	properties := append([]uint64(nil), a.Properties...)
	for i := 0; i+1 < len(properties) && properties[i] != 0; i += 2 {
		if properties[i] == clContextPlatform {
			properties[i+1] = uint64(cs.device.platform) // replaces the client's own handle
		}
	}
	addr, token := uintptr(0), uintptr(0)
	if a.Notify != 0 {
		addr, token = cs.callbacks.Context(func(text string, private []byte) {
			cs.report(a.Result, text, private)
		})
	}
	devices := cs.devices(c, a.Devices)
	if a.Properties == nil {
		properties = nil
	}
	status := cs.caller.create(c, fnClCreateContext, kindContext, a.Result,
		c.props(properties), uintptr(len(a.Devices)), c.handles(kindDevice, a.Devices), addr, token, c.errcode())
	if e, ok := cs.objects.table.Get(a.Result, kindContext); ok && status == clSuccess {
		cs.byID[a.Result] = &contextState{handle: e.Handle, devices: devices, token: token}
	} else {
		cs.callbacks.Drop(token)
	}
	return cs.caller.finish(c, status)
}

// contextError is an error that a driver reports for a context.
type contextError struct {
	context uint64
	text    string
	private []byte
}

// maxContextErrors bounds the reports that wait to be sent; further ones are discarded.
const maxContextErrors = 64

// report queues an error report. The driver's threads call it, and they must not wait for the ring.
func (cs *contexts) report(id uint64, text string, private []byte) {
	select {
	case cs.errors <- contextError{id, text, private}:
	default:
	}
}

// forwardErrors sends error reports to the client.
func (cs *contexts) forwardErrors(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-cs.errors:
			n := argsContextError{Context: e.context, Text: []byte(e.text), Private: e.private}
			cs.client.fail(cs.client.notify(opContextError, n.encode(nil)))
		}
	}
}

func (cs *contexts) doClCreateSubDevices(m *message, a *argsClCreateSubDevices) error {
	c := cs.caller.begin(m)
	const most = 256
	if a.MaxIds == 0 || a.MaxIds > most {
		a.MaxIds = most
	}
	out, count := c.memory(8*most), c.memory(8)
	in := c.handle(kindDevice, a.InDevice)
	status := cs.caller.invoke(c, fnClCreateSubDevices, in, c.props(a.Properties), uintptr(a.MaxIds), driver.Address(out), driver.Address(count))
	if status != clSuccess {
		return cs.caller.reply(c, status, (&replyClCreateSubDevices{Facts: []byte{}}).encode(c.body))
	}
	handles := make([]uintptr, min(binary.LittleEndian.Uint32(count), uint32(a.MaxIds)))
	for i := range handles {
		handles[i] = uintptr(firstWord(out[8*i:]))
		cs.objects.add(c, kindDevice, a.FirstId+uint64(i), handles[i], clSuccess)
	}
	n := factWriter{drv: cs.caller.drv, device: cs.device, frame: cs.frames.get()}
	defer cs.frames.put(n.frame)
	for i, h := range handles {
		cs.device.writeFacts(&n, a.FirstId+uint64(i), h)
	}
	r := replyClCreateSubDevices{Count: uint32(len(handles)), Facts: n.e.Body()}
	return cs.caller.reply(c, status, r.encode(c.body))
}

// forget drops a context that the client has released.
func (cs *contexts) forget(id uint64) {
	s := cs.byID[id]
	if s == nil {
		return
	}
	cs.callbacks.Drop(s.token)
	if s.upload != 0 {
		cs.caller.drv.Call(fnClReleaseCommandQueue, s.upload)
	}
	delete(cs.byID, id)
}
