package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// memObjects creates buffers, images and pipes within the lease's limit of device memory.
type memObjects struct {
	drv        *driver.Table
	callbacks  *driver.Callbacks
	caller     *caller
	client     *client
	frames     *frames
	device     *device
	budget     *budget
	memory     *deviceMemory
	staging    *staging
	hostMemory *hostMemory
	objects    *objects
	contexts   *contexts

	elements map[uint64]uint64 // element sizes, by image
	sizes    map[uint64]uint64 // by object whose destruction the driver does not report
}

// stagedUpload is the largest initial content that is gathered in host memory before the object is
// created; a larger one is sent to the device piece by piece.
const stagedUpload = 4 << 20

// create creates a memory object within the lease's limit. estimate is its size as far as it is
// known in advance; make calls the driver.
func (ms *memObjects) create(c *call, id, estimate uint64, make func() int32) int32 {
	c.object = id
	if c.status == clSuccess && !ms.memory.reserve(estimate) {
		c.fail(clAllocationFailure)
	}
	if c.status != clSuccess {
		ms.objects.add(c, kindMem, id, 0, c.status)
		return c.status
	}
	status := make()
	e, ok := ms.objects.table.Get(id, kindMem)
	if status != clSuccess || !ok || e.Handle == 0 {
		ms.memory.release(estimate)
		return status
	}
	ms.account(id, e.Handle, estimate)
	return status
}

// account replaces the estimate by the size that the driver reports, and has the size returned to
// the limit when the driver destroys the object, which may outlive the client's handle. With a
// driver that does not report destruction, the size is returned when the client releases the
// handle.
func (ms *memObjects) account(id uint64, handle uintptr, estimate uint64) {
	size := estimate
	if status, value := query(ms.drv, ms.frames.current, fnClGetMemObjectInfo, handle, clMemSize); status == clSuccess && len(value) == 8 {
		size = max(size, firstWord(value))
		ms.memory.add(size - estimate)
	}
	addr, token := ms.callbacks.Build(func() { ms.memory.release(size) })
	if addr == 0 || !ms.drv.Has(fnClSetMemObjectDestructorCallback) ||
		int32(ms.drv.Call(fnClSetMemObjectDestructorCallback, handle, addr, token)) != clSuccess {
		ms.callbacks.Drop(token)
		ms.sizes[id] = size
	}
}

func (ms *memObjects) doClCreateBuffer(m *message, a *argsClCreateBuffer) error {
	c := ms.caller.begin(m)
	return ms.createBuffer(c, a.Context, a.Flags, a.Size, a.Result, func(flags, host uintptr) int32 {
		return ms.caller.create(c, fnClCreateBuffer, kindMem, a.Result,
			c.handle(kindContext, a.Context), flags, uintptr(a.Size), host, c.errcode())
	})
}

func (ms *memObjects) doClCreateBufferWithProperties(m *message, a *argsClCreateBufferWithProperties) error {
	c := ms.caller.begin(m)
	return ms.createBuffer(c, a.Context, a.Flags, a.Size, a.Result, func(flags, host uintptr) int32 {
		return ms.caller.create(c, fnClCreateBufferWithProperties, kindMem, a.Result,
			c.handle(kindContext, a.Context), c.props(a.Properties), flags, uintptr(a.Size), host, c.errcode())
	})
}

// createBuffer creates a buffer whose initial content, if it has one, is the message's bulk. The
// client handles host pointers.
func (ms *memObjects) createBuffer(c *call, context, flags, size, id uint64, create func(flags, host uintptr) int32) error {
	if c.m.Bulk > 0 && c.m.Bulk != size {
		return malformed(c.m, fmt.Errorf("%d bytes for a buffer of %d", c.m.Bulk, size))
	}
	flags &^= clMemUseHostPtr | clMemCopyHostPtr
	ms.contexts.require(c, context)
	staged := c.m.Bulk > 0 && (size <= stagedUpload || flags&clMemHostFlags != 0)
	var host []byte
	var err error
	if staged {
		if host, err = ms.hostMemory.gatherBulk(c); err != nil {
			return err
		}
		flags |= clMemCopyHostPtr
	}
	status := ms.create(c, id, size, func() int32 { return create(uintptr(flags), driver.Address(host)) })
	if host != nil {
		ms.staging.put(host)
	}
	if status == clSuccess && c.m.Bulk > 0 && !staged {
		if status, err = ms.upload(context, id); err != nil {
			return err
		}
	}
	return ms.caller.finish(c, status)
}

// upload fills a new buffer from the message's bulk through a queue of the worker's own.
func (ms *memObjects) upload(context, id uint64) (int32, error) {
	s := ms.contexts.byID[context]
	e, _ := ms.objects.table.Get(id, kindMem)
	if s.upload == 0 && len(s.devices) > 0 {
		s.upload = ms.drv.Call(fnClCreateCommandQueue, s.handle, s.devices[0].handle, 0, 0)
	}
	if s.upload == 0 {
		return clOutOfResources, nil
	}
	for at := uintptr(0); ; {
		p, err := ms.client.in.NextBulk()
		if errors.Is(err, io.EOF) {
			return clSuccess, nil
		}
		if err != nil {
			return 0, err
		}
		status := int32(ms.drv.Call(fnClEnqueueWriteBuffer, s.upload, e.Handle, clTrue, at, uintptr(len(p)), driver.Address(p), 0, 0, 0))
		if status != clSuccess {
			ms.drv.Call(fnClReleaseMemObject, e.Handle)
			ms.forget(id)
			ms.budget.release(objectCost)
			ms.objects.table.Replace(id, session.Entry{Kind: kindMem, Failed: status})
			return status, nil
		}
		at += uintptr(len(p))
	}
}

func (ms *memObjects) doClCreatePipe(m *message, a *argsClCreatePipe) error {
	c := ms.caller.begin(m)
	size := product(uint64(a.PipePacketSize), uint64(a.PipeMaxPackets))
	return ms.caller.finish(c, ms.create(c, a.Result, size, func() int32 {
		return ms.caller.create(c, fnClCreatePipe, kindMem, a.Result, c.handle(kindContext, a.Context), uintptr(a.Flags),
			uintptr(a.PipePacketSize), uintptr(a.PipeMaxPackets), c.props(a.Properties), c.errcode())
	}))
}

func (ms *memObjects) doClCreateImage(m *message, a *argsClCreateImage) error {
	c := ms.caller.begin(m)
	if len(a.ImageFormat) != imageFormatSize || len(a.ImageDesc) != imageDescSize {
		return malformed(m, fmt.Errorf("image format of %d and description of %d bytes", len(a.ImageFormat), len(a.ImageDesc)))
	}
	desc := readImageDesc(a.ImageDesc)
	if desc.samples != 0 || desc.levels != 0 && !ms.device.mipmaps {
		c.fail(clInvalidImageDescriptor) // PoCL aborts
	}
	raw := c.memory(imageDescSize)
	copy(raw, a.ImageDesc)
	binary.LittleEndian.PutUint64(raw[desc.memAt:], uint64(c.optional(kindMem, a.MemObject)))
	if a.MemObject == 0 {
		// The client sends the pixels packed.
		clear(raw[desc.rowPitchAt : desc.slicePitchOffset+8])
	}
	flags := a.Flags &^ (clMemUseHostPtr | clMemCopyHostPtr)
	var host []byte
	var err error
	ms.contexts.require(c, a.Context)
	size := product(desc.pixels(), elementSize(a.ImageFormat))
	if a.MemObject != 0 {
		size = 0 // it shares the memory of another object
	}
	if m.Bulk > 0 {
		if m.Bulk != size {
			return malformed(m, fmt.Errorf("%d bytes for an image of %d", m.Bulk, size))
		}
		if host, err = ms.hostMemory.gatherBulk(c); err != nil {
			return err
		}
		flags |= clMemCopyHostPtr
	}
	status := ms.create(c, a.Result, size, func() int32 {
		return ms.createImage(c, a, uintptr(flags), driver.Address(raw), driver.Address(host))
	})
	if host != nil {
		ms.staging.put(host)
	}
	if e, ok := ms.objects.table.Get(a.Result, kindMem); ok && status == clSuccess {
		if s, value := query(ms.drv, ms.frames.current, fnClGetImageInfo, e.Handle, clImageElementSize); s == clSuccess {
			ms.elements[a.Result] = firstWord(value)
		}
	}
	return ms.caller.finish(c, status)
}

func (ms *memObjects) createImage(c *call, a *argsClCreateImage, flags, desc, host uintptr) int32 {
	context, format := c.handle(kindContext, a.Context), c.bytes(a.ImageFormat)
	if a.Properties != nil {
		return ms.caller.create(c, fnClCreateImageWithProperties, kindMem, a.Result, context, c.props(a.Properties), flags, format, desc, host, c.errcode())
	}
	return ms.caller.create(c, fnClCreateImage, kindMem, a.Result, context, flags, format, desc, host, c.errcode())
}

func (ms *memObjects) forget(id uint64) {
	delete(ms.elements, id)
	ms.memory.release(ms.sizes[id])
	delete(ms.sizes, id)
}
