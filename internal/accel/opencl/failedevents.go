package opencl

import (
	"sync"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// maxFailedEvents bounds how many events of failed commands a session keeps, some 16 MiB of
// the driver's memory.
const maxFailedEvents = 1 << 14

// failedEvents keeps the events of failed commands from being freed. PoCL ends a command as soon as
// one event of its wait list has failed, and leaves it in the notify lists of the other events:
// when one of these ends later, PoCL locks the failed command's event (pocl_broadcast), which
// aborts the process if the event is freed by then. Commands seldom fail, so the session keeps the
// latest maxFailedEvents of them until it ends.
type failedEvents struct {
	drv    *driver.Table
	frames *framePool

	mu     sync.Mutex
	kept   []uintptr
	oldest int // index of the oldest event, once maxFailedEvents are kept
}

// release drops a reference to an event, or keeps it when the event's command has failed. Any
// goroutine may call it.
func (f *failedEvents) release(event uintptr) {
	if f.failed(event) {
		event = f.retain(event)
	}
	if event != 0 {
		f.drv.Call(fnClReleaseEvent, event)
	}
}

func (f *failedEvents) failed(event uintptr) bool {
	frame := f.frames.get()
	defer f.frames.put(frame)
	b, err := frame.Bytes(8)
	if err != nil {
		return false
	}
	status := int32(f.drv.Call(fnClGetEventInfo, event, clEventExecutionStatus, 4, driver.Address(b), 0))
	return status == clSuccess && int32(uint32(firstWord(b))) < 0
}

// retain keeps an event and returns the event that it replaces, or 0.
func (f *failedEvents) retain(event uintptr) (replaced uintptr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.kept) < maxFailedEvents {
		f.kept = append(f.kept, event)
		return 0
	}
	replaced, f.kept[f.oldest] = f.kept[f.oldest], event
	f.oldest = (f.oldest + 1) % maxFailedEvents
	return replaced
}
