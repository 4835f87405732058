package opencl

import (
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// releases executes the client's releases of objects.
type releases struct {
	drv     *driver.Table
	budget  *budget
	objects *objects
	events  *events
	queues  *queues
	// sharedMemory frees the storage of the buffers over it.
	sharedMemory *sharedMemory
	// forget drops a part's state of an object, before the driver releases it.
	forget map[session.Kind]func(id uint64)
}

// releasers are the driver's functions that release an object, by kind.
var releasers = map[uint32]int{
	uint32(kindDevice): fnClReleaseDevice, uint32(kindContext): fnClReleaseContext, uint32(kindQueue): fnClReleaseCommandQueue,
	uint32(kindMem): fnClReleaseMemObject, uint32(kindSampler): fnClReleaseSampler, uint32(kindProgram): fnClReleaseProgram,
	uint32(kindKernel): fnClReleaseKernel,
}

// doRelease releases an object. It is no error if the object's creation had failed: that failure
// was reported when it happened.
func (rs *releases) doRelease(m *message, a *argsRelease) error {
	if a.Kind > 255 {
		return nil
	}
	rs.objects.await(a.Object)
	if session.Kind(a.Kind) == kindQueue {
		rs.queues.waitForTransfer(a.Object)
	}
	e, ok := rs.objects.table.Remove(a.Object, session.Kind(a.Kind))
	if !ok || e.Handle == 0 {
		return nil
	}
	rs.budget.release(costOf(session.Kind(a.Kind)))
	if session.Kind(a.Kind) == kindEvent {
		rs.events.release(a.Object, e.Handle)
		return nil
	}
	if forget := rs.forget[session.Kind(a.Kind)]; forget != nil {
		forget(a.Object)
	}
	if fn, ok := releasers[a.Kind]; ok {
		rs.drv.Call(fn, e.Handle)
	}
	if session.Kind(a.Kind) == kindMem {
		rs.sharedMemory.released(a.Object)
	}
	return nil
}
