package shm

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// direction has the shared words of one direction, each on its own cache line.
type direction struct {
	head, tail                *atomic.Uint64
	data, space               *atomic.Uint32 // bells
	dataSleeper, spaceSleeper *atomic.Uint32
}

func directionAt(control unsafe.Pointer, d int) direction {
	base := unsafe.Add(control, offDir+d*sizeDir)
	return direction{
		head:         (*atomic.Uint64)(unsafe.Add(base, offHead)),
		tail:         (*atomic.Uint64)(unsafe.Add(base, offTail)),
		data:         (*atomic.Uint32)(unsafe.Add(base, offDataBell)),
		space:        (*atomic.Uint32)(unsafe.Add(base, offSpaceBell)),
		dataSleeper:  (*atomic.Uint32)(unsafe.Add(base, offDataSleeper)),
		spaceSleeper: (*atomic.Uint32)(unsafe.Add(base, offSpaceSleeper)),
	}
}

// ring increments a bell's counter and wakes the sleeper. It makes the system call only if the
// flag is set; loading the flag before swapping it keeps the cache line shared.
func ring(bell, sleeper *atomic.Uint32) {
	bell.Add(1)
	if sleeper.Load() != 0 && sleeper.Swap(0) != 0 {
		wake(bell)
	}
}

// ringAlways is ring with an unconditional system call.
func ringAlways(bell, sleeper *atomic.Uint32) {
	bell.Add(1)
	sleeper.Store(0)
	wake(bell)
}

// sleep waits on a bell unless ready returns true. The flag is stored before ready
// is called: either the peer sees the flag after its change, or ready sees the change.
func sleep(bell, sleeper *atomic.Uint32, limit time.Duration, ready func() bool) {
	old := bell.Load()
	sleeper.Store(1)
	if ready() {
		sleeper.Store(0)
		return
	}
	wait(bell, old, limit)
}
