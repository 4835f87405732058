package opencl

import (
	"encoding/binary"
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// The forms of a kernel's argument.
const (
	formBytes = iota
	formLocal
	formMem
	formSampler
	formQueue
	formShared // a pointer into shared virtual memory
)

var formKinds = map[uint32]session.Kind{formMem: kindMem, formSampler: kindSampler, formQueue: kindQueue}

func (ks *kernels) doClSetKernelArg(m *message, a *argsClSetKernelArg) error {
	c := ks.caller.begin(m)
	kernel := c.handle(kindKernel, a.Kernel)
	value := uintptr(0)
	switch {
	case a.Form == formShared:
	case a.Form == formBytes:
		// The driver reads as many bytes as the size says.
		if a.Value != nil && uint64(len(a.Value)) < a.ArgSize {
			return malformed(m, fmt.Errorf("argument of %d bytes with %d", a.ArgSize, len(a.Value)))
		}
		value = c.bytes(a.Value)
	case a.Form == formLocal:
	case formKinds[a.Form] != 0:
		b := c.memory(8)
		binary.LittleEndian.PutUint64(b, uint64(c.optional(formKinds[a.Form], a.Object)))
		value = driver.Address(b)
	default:
		return malformed(m, fmt.Errorf("argument of form %d", a.Form))
	}
	var l *locals
	if c.status == clSuccess && kernel != 0 && (a.Form == formLocal || ks.locals[a.Kernel] != nil) {
		l = ks.localMemoryOf(a.Kernel, kernel)
	}
	status, err := ks.setArg(c, kernel, a, value)
	if err != nil {
		return err
	}
	if l != nil && status == clSuccess {
		l.set(a)
	}
	ks.recorder.setArg(a)
	return ks.caller.finish(c, status)
}

// setArg passes an argument to the driver; value is the address of its bytes, for forms that have
// bytes.
func (ks *kernels) setArg(c *call, kernel uintptr, a *argsClSetKernelArg, value uintptr) (int32, error) {
	if a.Form == formShared {
		return ks.sharedMemory.setKernelArg(c, kernel, a)
	}
	return ks.caller.invoke(c, fnClSetKernelArg, kernel, uintptr(a.ArgIndex), uintptr(a.ArgSize), value), nil
}

func (ks *kernels) doClSetKernelExecInfo(m *message, a *argsClSetKernelExecInfo) error {
	c := ks.caller.begin(m)
	return ks.caller.finish(c, ks.sharedMemory.setExecInfo(c, a))
}

// locals is the local memory that a kernel and its arguments need. Drivers should refuse a launch
// that needs too much; PoCL aborts.
type locals struct {
	own, sum uint64
	sizes    map[uint32]uint64
}

// localMemoryOf returns the local memory of a kernel. It queries the kernel's own need before the
// kernel has arguments in local memory.
func (ks *kernels) localMemoryOf(id uint64, handle uintptr) *locals {
	l := ks.locals[id]
	if l == nil {
		l = &locals{sizes: make(map[uint32]uint64)}
		if status, value := query(ks.drv, ks.frames.current, fnClGetKernelWorkGroupInfo, handle, ks.device.handle, clKernelLocalMemSize); status == clSuccess {
			l.own = firstWord(value)
		}
		ks.locals[id] = l
	}
	return l
}

func (l *locals) set(a *argsClSetKernelArg) {
	delete(l.sizes, a.ArgIndex)
	if a.Form == formLocal {
		l.sizes[a.ArgIndex] = a.ArgSize
	}
	l.sum = 0
	for _, size := range l.sizes {
		l.sum += min(size, 1<<40)
	}
}

func (ks *kernels) doClEnqueueNDRangeKernel(m *message, a *argsClEnqueueNDRangeKernel) error {
	c := ks.caller.begin(m)
	for _, sizes := range [][]uint64{a.GlobalWorkOffset, a.GlobalWorkSize, a.LocalWorkSize} {
		// The driver reads one element per dimension.
		if sizes != nil && len(sizes) < int(min(a.WorkDim, maxWorkDim)) {
			return malformed(m, fmt.Errorf("%d sizes for %d dimensions", len(sizes), a.WorkDim))
		}
	}
	switch {
	case a.WorkDim > maxWorkDim:
		c.fail(clInvalidWorkDimension)
	case a.GlobalWorkSize == nil:
		c.fail(clInvalidGlobalWorkSize) // the client has its own way for OpenCL 2.1's absent sizes
	}
	ks.recorder.launch(a)
	queue, kernel := c.handle(kindQueue, a.CommandQueue), c.handle(kindKernel, a.Kernel)
	if c.status == clSuccess && kernel != 0 {
		if l := ks.localMemoryOf(a.Kernel, kernel); ks.device.localMemory > 0 && l.own+l.sum > ks.device.localMemory {
			c.fail(clOutOfResources)
		}
	}
	return ks.caller.finish(c, ks.caller.invoke(c, fnClEnqueueNDRangeKernel, queue, kernel,
		uintptr(a.WorkDim), c.words(a.GlobalWorkOffset), c.words(a.GlobalWorkSize), c.words(a.LocalWorkSize),
		uintptr(len(a.EventWaitList)), c.handles(kindEvent, a.EventWaitList), c.commandEvent(kindEvent, a.Event)))
}

const (
	maxWorkDim                    = 16
	clInvalidWorkDimension  int32 = -53
	clInvalidGlobalWorkSize int32 = -63
)

// kernels checks kernels' arguments before the driver sees them.
type kernels struct {
	drv    *driver.Table
	caller *caller
	frames *frames
	device *device

	locals       map[uint64]*locals // by the id of a kernel that has arguments in local memory
	recorder     *recorder
	sharedMemory *sharedMemory
}

func (ks *kernels) forget(id uint64) {
	delete(ks.locals, id)
	ks.recorder.forgetKernel(id)
}
