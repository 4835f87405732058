package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// stagedUpload is the most initial data of an object that is gathered in host
// memory before the object is made; more goes to the device piece by piece.
const stagedUpload = 4 << 20

// newMem makes a memory object within the lease's limit. estimate is its size
// as far as it can be known before; make calls the driver.
func (w *Worker) newMem(c *call, id, estimate uint64, make func() int32) int32 {
	c.object = id
	if c.status == clSuccess && !w.memory.take(estimate) {
		c.fail(clAllocationFailure)
	}
	if c.status != clSuccess {
		w.enter(c, kindMem, id, 0, c.status)
		return c.status
	}
	status := make()
	e, ok := w.objects.Get(id, kindMem)
	if status != clSuccess || !ok || e.Handle == 0 {
		w.memory.give(estimate)
		return status
	}
	w.account(id, e.Handle, estimate)
	return status
}

// account replaces the estimate by what the driver says, and gives it back when
// the driver has freed the object: it may live longer than the client's handle.
// With a driver that does not tell, it is given back with the handle.
func (w *Worker) account(id uint64, handle uintptr, estimate uint64) {
	size := estimate
	if status, value := ask(w.drv, w.frame, fnClGetMemObjectInfo, handle, clMemSize); status == clSuccess && len(value) == 8 {
		size = max(size, word(value))
		w.memory.force(size - estimate)
	}
	addr, token := w.opts.Callbacks.Build(func() { w.memory.give(size) })
	if addr == 0 || !w.drv.Has(fnClSetMemObjectDestructorCallback) ||
		int32(w.drv.Call(fnClSetMemObjectDestructorCallback, handle, addr, token)) != clSuccess {
		w.opts.Callbacks.Drop(token)
		w.sizes[id] = size
	}
}

func (w *Worker) doClCreateBuffer(m *message, a *argsClCreateBuffer) error {
	c := w.begin(m)
	return w.newBuffer(c, a.Context, a.Flags, a.Size, a.Result, func(flags, host uintptr) int32 {
		return w.create(c, fnClCreateBuffer, kindMem, a.Result,
			c.handle(kindContext, a.Context), flags, uintptr(a.Size), host, c.errcode())
	})
}

func (w *Worker) doClCreateBufferWithProperties(m *message, a *argsClCreateBufferWithProperties) error {
	c := w.begin(m)
	return w.newBuffer(c, a.Context, a.Flags, a.Size, a.Result, func(flags, host uintptr) int32 {
		return w.create(c, fnClCreateBufferWithProperties, kindMem, a.Result,
			c.handle(kindContext, a.Context), c.props(a.Properties), flags, uintptr(a.Size), host, c.errcode())
	})
}

// newBuffer makes a buffer whose initial content, if it has one, is the
// message's bulk. Host pointers are the client's affair.
func (w *Worker) newBuffer(c *call, context, flags, size, id uint64, create func(flags, host uintptr) int32) error {
	if c.m.Bulk > 0 && c.m.Bulk != size {
		return w.malformed(c.m, fmt.Errorf("%d bytes for a buffer of %d", c.m.Bulk, size))
	}
	flags &^= clMemUseHostPtr | clMemCopyHostPtr
	w.needContext(c, context)
	staged := c.m.Bulk > 0 && (size <= stagedUpload || flags&clMemHostFlags != 0)
	var host []byte
	var err error
	if staged {
		if host, err = w.gather(c); err != nil {
			return err
		}
		flags |= clMemCopyHostPtr
	}
	status := w.newMem(c, id, size, func() int32 { return create(uintptr(flags), driver.Address(host)) })
	if host != nil {
		w.staging.put(host)
	}
	if status == clSuccess && c.m.Bulk > 0 && !staged {
		if status, err = w.upload(context, id); err != nil {
			return err
		}
	}
	return w.finish(c, status)
}

func (w *Worker) needContext(c *call, id uint64) {
	if w.contexts[id] != nil {
		return
	}
	if c.handle(kindContext, id); c.status == clSuccess {
		c.fail(invalid[kindContext])
	}
}

// gather takes the message's bulk into staging memory, nil when there is none
// to be had: then the call has failed.
func (w *Worker) gather(c *call) ([]byte, error) {
	if c.m.Bulk > w.memory.limit || c.m.Bulk > 1<<40 {
		c.fail(clAllocationFailure)
		return nil, nil
	}
	block := w.stage(int(c.m.Bulk))
	if block == nil {
		c.fail(clOutOfHostMemory)
		return nil, nil
	}
	for at := 0; ; {
		p, err := w.in.NextBulk()
		if errors.Is(err, io.EOF) {
			return block, nil
		}
		if err != nil {
			return nil, err
		}
		at += copy(block[at:], p)
	}
}

// searchEvery is how long a search for memory that was in vain is not repeated.
const searchEvery = 20 * time.Millisecond

// stage gets staging memory. It frees what can be freed, and waits for the device
// when that can help; nil says that there is none to be had.
func (w *Worker) stage(size int) []byte {
	if b := w.staging.get(size); b != nil {
		return b
	}
	// A long list of commands that can't go on is not searched for each more.
	if now := time.Now(); now.Sub(w.searched) > searchEvery {
		w.searched = now
		w.fault(w.settle())
		if b := w.staging.get(size); b != nil {
			return b
		}
	}
	if int64(size) > w.host.limit || !w.relieve() {
		return nil
	}
	return w.staging.get(size)
}

// upload fills a new buffer from the message's bulk through a queue of our own.
func (w *Worker) upload(context, id uint64) (int32, error) {
	s := w.contexts[context]
	e, _ := w.objects.Get(id, kindMem)
	if s.upload == 0 && len(s.devices) > 0 {
		s.upload = w.drv.Call(fnClCreateCommandQueue, s.handle, s.devices[0].handle, 0, 0)
	}
	if s.upload == 0 {
		return clOutOfResources, nil
	}
	for at := uintptr(0); ; {
		p, err := w.in.NextBulk()
		if errors.Is(err, io.EOF) {
			return clSuccess, nil
		}
		if err != nil {
			return 0, err
		}
		status := int32(w.drv.Call(fnClEnqueueWriteBuffer, s.upload, e.Handle, clTrue, at, uintptr(len(p)), driver.Address(p), 0, 0, 0))
		if status != clSuccess {
			w.drv.Call(fnClReleaseMemObject, e.Handle)
			w.forget(id, kindMem, e.Handle)
			w.host.give(objectCost)
			w.objects.Replace(id, session.Entry{Kind: kindMem, Failed: status})
			return status, nil
		}
		at += uintptr(len(p))
	}
}

func (w *Worker) doClCreatePipe(m *message, a *argsClCreatePipe) error {
	c := w.begin(m)
	size := product(uint64(a.PipePacketSize), uint64(a.PipeMaxPackets))
	return w.finish(c, w.newMem(c, a.Result, size, func() int32 {
		return w.create(c, fnClCreatePipe, kindMem, a.Result, c.handle(kindContext, a.Context), uintptr(a.Flags),
			uintptr(a.PipePacketSize), uintptr(a.PipeMaxPackets), c.props(a.Properties), c.errcode())
	}))
}

// imageDesc is cl_image_desc, 72 bytes on 64-bit machines.
type imageDesc struct {
	kind                                uint32
	width, height, depth, array         uint64
	rowPitch, slicePitch                uint64
	levels, samples                     uint32
	memAt, rowPitchAt, slicePitchOffset int
}

const clInvalidImageDescriptor int32 = -65

const imageDescSize, imageFormatSize = 72, 8

func readImageDesc(b []byte) imageDesc {
	return imageDesc{
		kind: binary.LittleEndian.Uint32(b), width: word(b[8:]), height: word(b[16:]), depth: word(b[24:]), array: word(b[32:]),
		rowPitch: word(b[40:]), slicePitch: word(b[48:]), levels: binary.LittleEndian.Uint32(b[56:]), samples: binary.LittleEndian.Uint32(b[60:]),
		memAt: 64, rowPitchAt: 40, slicePitchOffset: 48,
	}
}

// pixels counts them; dimensions that a kind of image does not use may be anything.
func (d imageDesc) pixels() uint64 {
	switch d.kind {
	case 0x10F1: // 2D
		return product(d.width, max(d.height, 1))
	case 0x10F2: // 3D
		return product(d.width, max(d.height, 1), max(d.depth, 1))
	case 0x10F3: // 2D array
		return product(d.width, max(d.height, 1), max(d.array, 1))
	case 0x10F5: // 1D array
		return product(d.width, max(d.array, 1))
	}
	return d.width
}

// channels and widths of cl_image_format: CL_R and so on, CL_SNORM_INT8 and so on.
var (
	channelCounts = map[uint32]uint64{
		0x10B0: 1, 0x10B1: 1, 0x10B2: 2, 0x10B3: 2, 0x10B4: 3, 0x10B5: 4, 0x10B6: 4, 0x10B7: 4, 0x10B8: 1, 0x10B9: 1,
		0x10BA: 2, 0x10BB: 3, 0x10BC: 4, 0x10BD: 1, 0x10BE: 1, 0x10BF: 3, 0x10C0: 4, 0x10C1: 4, 0x10C2: 4, 0x10C3: 4,
	}
	channelWidths = map[uint32]uint64{
		0x10D0: 1, 0x10D1: 2, 0x10D2: 1, 0x10D3: 2, 0x10D7: 1, 0x10D8: 2, 0x10D9: 4, 0x10DA: 1, 0x10DB: 2, 0x10DC: 4,
		0x10DD: 2, 0x10DE: 4, 0x10DF: 4,
	}
	packedWidths = map[uint32]uint64{0x10D4: 2, 0x10D5: 2, 0x10D6: 4, 0x10E0: 4} // whole pixels
)

// elementSize is a pixel's size; 0 for a format that we don't know.
func elementSize(format []byte) uint64 {
	order, kind := binary.LittleEndian.Uint32(format), binary.LittleEndian.Uint32(format[4:])
	if n := packedWidths[kind]; n > 0 {
		return n
	}
	return channelCounts[order] * channelWidths[kind]
}

func (w *Worker) doClCreateImage(m *message, a *argsClCreateImage) error {
	c := w.begin(m)
	if len(a.ImageFormat) != imageFormatSize || len(a.ImageDesc) != imageDescSize {
		return w.malformed(m, fmt.Errorf("image format of %d and description of %d bytes", len(a.ImageFormat), len(a.ImageDesc)))
	}
	desc := readImageDesc(a.ImageDesc)
	if desc.samples != 0 || desc.levels != 0 && !w.mipmaps {
		c.fail(clInvalidImageDescriptor) // PoCL aborts
	}
	raw := c.memory(imageDescSize)
	copy(raw, a.ImageDesc)
	binary.LittleEndian.PutUint64(raw[desc.memAt:], uint64(c.optional(kindMem, a.MemObject)))
	if a.MemObject == 0 {
		// The client sends its pixels packed.
		clear(raw[desc.rowPitchAt : desc.slicePitchOffset+8])
	}
	flags := a.Flags &^ (clMemUseHostPtr | clMemCopyHostPtr)
	var host []byte
	var err error
	w.needContext(c, a.Context)
	size := product(desc.pixels(), elementSize(a.ImageFormat))
	if a.MemObject != 0 {
		size = 0 // it shares the memory of another object
	}
	if m.Bulk > 0 {
		if m.Bulk != size {
			return w.malformed(m, fmt.Errorf("%d bytes for an image of %d", m.Bulk, size))
		}
		if host, err = w.gather(c); err != nil {
			return err
		}
		flags |= clMemCopyHostPtr
	}
	status := w.newMem(c, a.Result, size, func() int32 {
		return w.createImage(c, a, uintptr(flags), driver.Address(raw), driver.Address(host))
	})
	if host != nil {
		w.staging.put(host)
	}
	if e, ok := w.objects.Get(a.Result, kindMem); ok && status == clSuccess {
		if s, value := ask(w.drv, w.frame, fnClGetImageInfo, e.Handle, clImageElementSize); s == clSuccess {
			w.images[a.Result] = word(value)
		}
	}
	return w.finish(c, status)
}

func (w *Worker) createImage(c *call, a *argsClCreateImage, flags, desc, host uintptr) int32 {
	context, format := c.handle(kindContext, a.Context), c.bytes(a.ImageFormat)
	if a.Properties != nil {
		return w.create(c, fnClCreateImageWithProperties, kindMem, a.Result, context, c.props(a.Properties), flags, format, desc, host, c.errcode())
	}
	return w.create(c, fnClCreateImage, kindMem, a.Result, context, flags, format, desc, host, c.errcode())
}
