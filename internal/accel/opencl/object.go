package opencl

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// Protocol is the version of opencl.api that this worker speaks.
const Protocol = 1

func errProtocolVersion(got uint32) error {
	return fmt.Errorf("the client speaks protocol %d, this worker %d: use the same version of outboard on both machines", got, Protocol)
}

// A deviceRef is a device by id and handle.
type deviceRef struct {
	id     uint64
	handle uintptr
}

// contextState is what the dispatcher knows of a context.
type contextState struct {
	handle  uintptr
	devices []deviceRef
	token   uintptr // of the callback for its errors
	upload  uintptr // a queue of our own, made when it is needed
}

// releasers are the functions that give objects back, by kind.
var releasers = map[uint32]int{
	uint32(kindDevice): fnClReleaseDevice, uint32(kindContext): fnClReleaseContext, uint32(kindQueue): fnClReleaseCommandQueue,
	uint32(kindMem): fnClReleaseMemObject, uint32(kindSampler): fnClReleaseSampler, uint32(kindProgram): fnClReleaseProgram,
	uint32(kindKernel): fnClReleaseKernel,
}

// doRelease ends an object's life. Releasing what never came to be is no error:
// its failure was told when it happened.
func (w *Worker) doRelease(m *message, a *argsRelease) error {
	if a.Kind > 255 {
		return nil
	}
	w.await(a.Object)
	if session.Kind(a.Kind) == kindQueue {
		w.settleQueue(a.Object)
	}
	e, ok := w.objects.Remove(a.Object, session.Kind(a.Kind))
	if !ok || e.Handle == 0 {
		return nil
	}
	w.host.give(costOf(session.Kind(a.Kind)))
	if session.Kind(a.Kind) == kindEvent {
		w.releaseEvent(a.Object, e.Handle)
		return nil
	}
	w.forget(a.Object, session.Kind(a.Kind), e.Handle)
	if fn, ok := releasers[a.Kind]; ok {
		w.drv.Call(fn, e.Handle)
	}
	return nil
}

func (w *Worker) refs(c *call, ids []uint64) []deviceRef {
	refs := make([]deviceRef, len(ids))
	for i, id := range ids {
		refs[i] = deviceRef{id, c.handle(kindDevice, id)}
	}
	return refs
}

func (w *Worker) doClCreateContext(m *message, a *argsClCreateContext) error {
	c := w.begin(m)
	properties := append([]uint64(nil), a.Properties...)
	for i := 0; i+1 < len(properties) && properties[i] != 0; i += 2 {
		if properties[i] == clContextPlatform {
			properties[i+1] = uint64(w.platform) // whatever stood for it at the client
		}
	}
	addr, token := uintptr(0), uintptr(0)
	if a.Notify != 0 {
		addr, token = w.opts.Callbacks.Context(func(text string, private []byte) {
			w.contextError(a.Result, text, private)
		})
	}
	devices := w.refs(c, a.Devices)
	if a.Properties == nil {
		properties = nil
	}
	status := w.create(c, fnClCreateContext, kindContext, a.Result,
		c.props(properties), uintptr(len(a.Devices)), c.handles(kindDevice, a.Devices), addr, token, c.errcode())
	if e, ok := w.objects.Get(a.Result, kindContext); ok && status == clSuccess {
		w.contexts[a.Result] = &contextState{handle: e.Handle, devices: devices, token: token}
	} else {
		w.opts.Callbacks.Drop(token)
	}
	return w.finish(c, status)
}

// A complaint is what a driver has to say about what happens in a context.
type complaint struct {
	context uint64
	text    string
	private []byte
}

// mostComplaints wait to be sent: they are for people.
const mostComplaints = 64

// contextError is called by the driver's threads, which must not wait for the
// ring. A driver that says too much is not heard out.
func (w *Worker) contextError(id uint64, text string, private []byte) {
	select {
	case w.complaints <- complaint{id, text, private}:
	default:
	}
}

// complain sends what drivers complain about.
func (w *Worker) complain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case said := <-w.complaints:
			n := argsContextError{Context: said.context, Text: []byte(said.text), Private: said.private}
			w.fault(w.notify(opContextError, n.encode(nil)))
		}
	}
}

func (w *Worker) forget(id uint64, kind session.Kind, handle uintptr) {
	switch kind {
	case kindQueue:
		if q := w.queues[id]; q != nil {
			if q.unflushed {
				w.flushQueue(q)
			}
			w.outlive(q)
			q.handle = 0 // a pending command may still point here
			delete(w.queues, id)
		}
	case kindContext:
		if s := w.contexts[id]; s != nil {
			w.opts.Callbacks.Drop(s.token)
			if s.upload != 0 {
				w.drv.Call(fnClReleaseCommandQueue, s.upload)
			}
			delete(w.contexts, id)
		}
	case kindKernel:
		delete(w.locals, id)
	case kindProgram:
		if p := w.programs[id]; p != nil {
			w.host.give(p.size)
		}
		delete(w.programs, id)
	case kindMem:
		delete(w.images, id)
		w.memory.give(w.sizes[id])
		delete(w.sizes, id)
	}
}

func (w *Worker) doClCreateSubDevices(m *message, a *argsClCreateSubDevices) error {
	c := w.begin(m)
	const most = 256
	if a.MaxIds == 0 || a.MaxIds > most {
		a.MaxIds = most
	}
	out, count := c.memory(8*most), c.memory(8)
	in := c.handle(kindDevice, a.InDevice)
	status := w.invoke(c, fnClCreateSubDevices, in, c.props(a.Properties), uintptr(a.MaxIds), driver.Address(out), driver.Address(count))
	if status != clSuccess {
		return w.reply(c, status, (&replyClCreateSubDevices{Facts: []byte{}}).encode(c.body))
	}
	handles := make([]uintptr, min(binary.LittleEndian.Uint32(count), uint32(a.MaxIds)))
	for i := range handles {
		handles[i] = uintptr(word(out[8*i:]))
		w.enter(c, kindDevice, a.FirstId+uint64(i), handles[i], clSuccess)
	}
	n := notebook{w: w, frame: w.frames.get()}
	defer w.frames.put(n.frame)
	for i, h := range handles {
		w.deviceFacts(&n, a.FirstId+uint64(i), h)
	}
	r := replyClCreateSubDevices{Count: uint32(len(handles)), Facts: n.e.Body()}
	return w.reply(c, status, r.encode(c.body))
}
