package image

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Watch tells whether code that ran in this goroutine, and in memory of one range,
// took a page fault. Without one no page can have become private: what the code wrote
// are pages that the range had made its own before, and to look for others is to find
// none. It is what makes most resets cheap.
//
// The kernel counts faults by thread, so the goroutine stays with its thread while it is
// watched. A Watch is begun and ended, or left, in one goroutine.
type Watch struct {
	faults int64
	on     bool
}

// Begin begins.
func (w *Watch) Begin() {
	runtime.LockOSThread()
	w.faults, w.on = faults(), true
}

// Leave gives the thread free, before something that waits. End returns false then.
func (w *Watch) Leave() {
	if w.on {
		w.on = false
		runtime.UnlockOSThread()
	}
}

// End says whether no page fault was taken since Begin.
func (w *Watch) End() bool {
	if !w.on {
		return false
	}
	quiet := w.faults == faults()
	w.Leave()
	return quiet
}

// faults is how many page faults this thread took.
func faults() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return -1 // it cannot fail; see Resetter.probe
	}
	return u.Minflt + u.Majflt
}
