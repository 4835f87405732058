package shm

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// direction is the shared words of one direction. Each stands on a cache line of
// its own.
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

// ring tells the other end that something changed. The system call is made only
// when somebody sleeps; the plain load first keeps the cache line shared.
func ring(bell, sleeper *atomic.Uint32) {
	bell.Add(1)
	if sleeper.Load() != 0 && sleeper.Swap(0) != 0 {
		wake(bell)
	}
}

// shout wakes whoever sleeps, whatever the flag says.
func shout(bell, sleeper *atomic.Uint32) {
	bell.Add(1)
	sleeper.Store(0)
	wake(bell)
}

// sleep waits on a bell unless ready holds. The flag is stored before ready
// looks again: a peer that changes something in between sees the flag, or we see
// the change.
func sleep(bell, sleeper *atomic.Uint32, limit time.Duration, ready func() bool) {
	old := bell.Load()
	sleeper.Store(1)
	if ready() {
		sleeper.Store(0)
		return
	}
	wait(bell, old, limit)
}
