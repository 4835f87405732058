package shm

import (
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The futex operations without FUTEX_PRIVATE_FLAG: a private futex does not match
// across processes.
const (
	futexWait = 0
	futexWake = 1
)

// heldProcessors counts the goroutines of this process that hold a processor (a P of Go's
// scheduler) while they sleep or spin. It is global like the scheduler's state, which it extends.
//
//nolint:gochecknoglobals // see above
var heldProcessors atomic.Int32

// maxHold is how long a sleeping goroutine may hold its processor.
const maxHold = time.Millisecond

// wait sleeps while the bell's counter is old, at most for limit. It may return early for any
// reason, so the caller checks its condition again.
//
// A goroutine that holds its processor while it sleeps resumes sooner: a round trip between two
// processes takes 3.5 us against 10, and one through two relays 58 against 100 (measured). But
// while sleepers hold all processors no other goroutine runs, not even a goroutine that would wake
// them. So at least one processor always remains free, and a sleep longer than maxHold releases its
// own.
func wait(bell *atomic.Uint32, old uint32, limit time.Duration) {
	if heldProcessors.Add(1) < int32(runtime.GOMAXPROCS(0)) {
		ts := unix.NsecToTimespec(int64(min(maxHold, limit)))
		_, _, err := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(bell)), futexWait, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, 0)
		heldProcessors.Add(-1)
		if err != unix.ETIMEDOUT || limit <= maxHold {
			return
		}
	} else {
		heldProcessors.Add(-1)
	}
	ts := unix.NsecToTimespec(int64(limit))
	futexSleep(bell, old, &ts)
}

// futexSleep releases the processor before it sleeps. In an ordinary system
// call the scheduler's monitor retakes the processor only 20 microseconds to 10
// milliseconds later. The runtime keeps the two functions linkable for this use
// (gVisor sleeps the same way). The stack must not grow between them, so every function
// called here is nosplit.
//
//go:nosplit
//go:norace
func futexSleep(bell *atomic.Uint32, old uint32, ts *unix.Timespec) {
	entersyscallblock()
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(bell)), futexWait, uintptr(old), uintptr(unsafe.Pointer(ts)), 0, 0)
	exitsyscall()
}

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// wake wakes all threads that sleep on the bell. It never blocks, so it bypasses the
// scheduler's system call hooks.
func wake(bell *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(bell)), futexWake, math.MaxInt32, 0, 0, 0)
}
