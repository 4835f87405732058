package image

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Watch detects whether this goroutine took a page fault while it ran code in one range.
// Without a fault no further page can have become private: all writes went to pages that
// were private before, and a scan would find no others. So most resets need no scan.
//
// The kernel counts faults by thread, so the goroutine is locked to its thread while it is
// watched. Begin, Leave and End are called by the same goroutine.
type Watch struct {
	faults int64
	on     bool
}

// Begin locks the goroutine to its thread and reads the fault counter.
func (w *Watch) Begin() {
	runtime.LockOSThread()
	w.faults, w.on = faults(), true
}

// Leave unlocks the thread, before a blocking operation. End returns false afterwards.
func (w *Watch) Leave() {
	if w.on {
		w.on = false
		runtime.UnlockOSThread()
	}
}

// End reports whether the thread took no page fault since Begin.
func (w *Watch) End() bool {
	if !w.on {
		return false
	}
	quiet := w.faults == faults()
	w.Leave()
	return quiet
}

// faults returns the number of page faults of this thread.
func faults() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return -1 // unreachable: Resetter.probe has tried it
	}
	return u.Minflt + u.Majflt
}
