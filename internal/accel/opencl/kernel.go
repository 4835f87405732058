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
)

var formKinds = map[uint32]session.Kind{formMem: kindMem, formSampler: kindSampler, formQueue: kindQueue}

func (w *Worker) doClSetKernelArg(m *message, a *argsClSetKernelArg) error {
	c := w.begin(m)
	kernel := c.handle(kindKernel, a.Kernel)
	value := uintptr(0)
	switch {
	case a.Form == formBytes:
		// The driver reads as much as the size says.
		if a.Value != nil && uint64(len(a.Value)) < a.ArgSize {
			return w.malformed(m, fmt.Errorf("argument of %d bytes with %d", a.ArgSize, len(a.Value)))
		}
		value = c.bytes(a.Value)
	case a.Form == formLocal:
	case formKinds[a.Form] != 0:
		b := c.memory(8)
		binary.LittleEndian.PutUint64(b, uint64(c.handle(formKinds[a.Form], a.Object)))
		value = driver.Address(b)
	default:
		return w.malformed(m, fmt.Errorf("argument of form %d", a.Form))
	}
	return w.finish(c, w.invoke(c, fnClSetKernelArg, kernel, uintptr(a.ArgIndex), uintptr(a.ArgSize), value))
}

func (w *Worker) doClEnqueueNDRangeKernel(m *message, a *argsClEnqueueNDRangeKernel) error {
	c := w.begin(m)
	for _, sizes := range [][]uint64{a.GlobalWorkOffset, a.GlobalWorkSize, a.LocalWorkSize} {
		// The driver reads as many as there are dimensions.
		if sizes != nil && len(sizes) < int(min(a.WorkDim, maxWorkDim)) {
			return w.malformed(m, fmt.Errorf("%d sizes for %d dimensions", len(sizes), a.WorkDim))
		}
	}
	if a.WorkDim > maxWorkDim {
		c.fail(clInvalidWorkDimension)
	}
	return w.finish(c, w.invoke(c, fnClEnqueueNDRangeKernel, c.handle(kindQueue, a.CommandQueue), c.handle(kindKernel, a.Kernel),
		uintptr(a.WorkDim), c.words(a.GlobalWorkOffset), c.words(a.GlobalWorkSize), c.words(a.LocalWorkSize),
		uintptr(len(a.EventWaitList)), c.handles(kindEvent, a.EventWaitList), c.created(kindEvent, a.Event)))
}

const (
	maxWorkDim                   = 16
	clInvalidWorkDimension int32 = -53
)
