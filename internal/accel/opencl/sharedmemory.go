package opencl

import (
	"encoding/binary"
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// sharedMemory allocates shared virtual memory (coarse-grained). Each allocation has a buffer over
// it, under an id that the client chose, through which its contents are transferred. The driver
// chooses the addresses: the client reserves the same ones in the program, or asks again.
type sharedMemory struct {
	drv      *driver.Table
	caller   *caller
	device   *device
	contexts *contexts
	memory   *deviceMemory
	events   *events
	queues   *queues

	allocations map[uint64]sharedAllocation // by the id of the buffer
	// freed are allocations without a buffer that unfinished commands may still use.
	freed []sharedAllocation
}

// sharedAllocation is memory that the driver's clSVMAlloc returned.
type sharedAllocation struct {
	context uintptr // retained
	address uintptr
	size    uint64 // bytes that the client uses
	counted uint64 // bytes, with the padding
}

const (
	clKernelExecInfoSVMPtrs = 0x11B6
	svmCoarseGrainBuffer    = 1 << 0
	// largestAlignment is the size of OpenCL's largest data type (long16), to which drivers align
	// by default. Fills rely on it.
	largestAlignment = 128
	// maxPadding bounds the padding that a client may request beyond the allocation.
	maxPadding = 64 << 20
)

// sharesMemory reports whether the driver's device has coarse-grained shared virtual memory, with
// every function that it requires.
func sharesMemory(drv *driver.Table, frame *driver.Frame, handle uintptr) bool {
	for _, fn := range []int{fnClSVMAlloc, fnClSVMFree, fnClSetKernelArgSVMPointer, fnClSetKernelExecInfo} {
		if !drv.Has(fn) {
			return false
		}
	}
	status, value := query(drv, frame, fnClGetDeviceInfo, handle, clDeviceSVMCapabilities)
	return status == clSuccess && firstWord(value)&svmCoarseGrainBuffer != 0
}

func (s *sharedMemory) doSvmAlloc(m *message, a *argsSvmAlloc) error {
	c := s.caller.begin(m)
	s.freeUnused()
	context := c.handle(kindContext, a.Context)
	s.contexts.require(c, a.Context)
	switch {
	case !s.device.sharesMemory:
		c.fail(clInvalidOperation)
	case a.Size == 0 || a.Size > 1<<46 || a.Padding > maxPadding || a.Flags&^clMemAccess != 0:
		c.fail(clInvalidValue)
	}
	status := s.allocate(c, a, context)
	if status != clSuccess {
		return s.caller.reply(c, status, nil)
	}
	return s.caller.reply(c, status, (&replySvmAlloc{Address: uint64(s.allocations[a.Result].address)}).encode(c.body))
}

// allocate creates the allocation and its buffer, which may be read and written regardless of the
// access that kernels have to the allocation. When it fails, the id becomes that of a failed
// object.
func (s *sharedMemory) allocate(c *call, a *argsSvmAlloc, context uintptr) int32 {
	n := sharedAllocation{context: context, size: a.Size, counted: a.Size + a.Padding}
	if c.status == clSuccess && !s.memory.reserve(n.counted) {
		c.fail(clAllocationFailure)
		n.counted = 0
	}
	if c.status == clSuccess {
		n.address = s.drv.Call(fnClSVMAlloc, context, uintptr(a.Flags), uintptr(n.counted), alignment(a.Alignment))
		if n.address == 0 {
			s.memory.release(n.counted)
			c.fail(clAllocationFailure)
		}
	}
	status := s.caller.create(c, fnClCreateBuffer, kindMem, a.Result, context, clMemReadWrite|clMemUseHostPtr, uintptr(a.Size), n.address, c.errcode())
	switch {
	case n.address == 0:
		return status
	case status != clSuccess || c.broken != nil:
		s.drv.Call(fnClSVMFree, context, n.address)
		s.memory.release(n.counted)
		return status
	}
	s.drv.Call(fnClRetainContext, context)
	s.allocations[a.Result] = n
	return status
}

// alignment returns the alignment argument for clSVMAlloc, 0 where the default suffices.
func alignment(wanted uint32) uintptr {
	if wanted <= largestAlignment {
		return 0
	}
	return uintptr(wanted)
}

// released frees the allocation of a buffer that has been released.
func (s *sharedMemory) released(id uint64) {
	n, ok := s.allocations[id]
	if !ok {
		return
	}
	delete(s.allocations, id)
	s.freed = append(s.freed, n)
	s.freeUnused()
}

// freeUnused frees the allocations that the client has freed, once no command can use them any
// more. It does not wait for commands that a user event holds back: a later call tries again. Until
// then the bytes count.
func (s *sharedMemory) freeUnused() {
	if len(s.freed) == 0 || len(s.events.unresolved) > 0 {
		return
	}
	s.queues.drain()
	for _, n := range s.freed {
		s.drv.Call(fnClSVMFree, n.context, n.address)
		s.drv.Call(fnClReleaseContext, n.context)
		s.memory.release(n.counted)
	}
	s.freed = s.freed[:0]
}

// pointer returns the address of an offset in an allocation. The end is a valid offset: programs
// pass it.
func (s *sharedMemory) pointer(c *call, id, offset uint64) uintptr {
	n, ok := s.allocations[id]
	if !ok || offset > n.size {
		return c.fail(clInvalidValue)
	}
	return n.address + uintptr(offset)
}

// setKernelArg sets an argument that points into shared virtual memory.
func (s *sharedMemory) setKernelArg(c *call, kernel uintptr, a *argsClSetKernelArg) (int32, error) {
	if len(a.Value) != 8 {
		return 0, malformed(c.m, fmt.Errorf("offset of %d bytes", len(a.Value)))
	}
	address := uintptr(0)
	if a.Object != 0 {
		address = s.pointer(c, a.Object, binary.LittleEndian.Uint64(a.Value))
	}
	return s.caller.invoke(c, fnClSetKernelArgSVMPointer, kernel, uintptr(a.ArgIndex), address), nil
}

// setExecInfo passes the allocations that a kernel reaches through pointers that are not arguments.
// An empty list has no address.
func (s *sharedMemory) setExecInfo(c *call, a *argsClSetKernelExecInfo) int32 {
	kernel := c.handle(kindKernel, a.Kernel)
	if a.ParamName != clKernelExecInfoSVMPtrs {
		c.fail(clInvalidValue)
	}
	var addresses []uint64
	for _, id := range a.Objects {
		addresses = append(addresses, uint64(s.pointer(c, id, 0)))
	}
	return s.caller.invoke(c, fnClSetKernelExecInfo, kernel, uintptr(a.ParamName), uintptr(8*len(addresses)), c.words(addresses))
}
