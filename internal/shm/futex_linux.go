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

// The operations without FUTEX_PRIVATE_FLAG: a private futex does not match
// across processes.
const (
	futexWait = 0
	futexWake = 1
)

// keepers counts the sleepers of this process that keep their processor (the P of
// Go's scheduler) while they sleep. It belongs to the scheduler's state, of which
// a process has one.
//
//nolint:gochecknoglobals // see above
var keepers atomic.Int32

// brief is how long a sleeper may keep its processor.
const brief = time.Millisecond

// wait sleeps while the bell still has the value old, at most for limit. It may
// return early for any reason: the caller looks again.
//
// A sleeper that keeps its processor is back at work sooner: a round trip between
// two processes takes 3.5 us against 10, and one through two relays 58 against
// 100 (measured). But while all processors are kept by sleepers nothing else runs,
// not even who would wake them. So at least one is always left, and a long sleep
// keeps none.
func wait(bell *atomic.Uint32, old uint32, limit time.Duration) {
	if keepers.Add(1) < int32(runtime.GOMAXPROCS(0)) {
		ts := unix.NsecToTimespec(int64(min(brief, limit)))
		_, _, err := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(bell)), futexWait, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, 0)
		keepers.Add(-1)
		if err != unix.ETIMEDOUT || limit <= brief {
			return
		}
	} else {
		keepers.Add(-1)
	}
	ts := unix.NsecToTimespec(int64(limit))
	futexSleep(bell, old, &ts)
}

// futexSleep gives the processor away before it sleeps. After an ordinary system
// call the scheduler's monitor must take it back, 20 microseconds to 10
// milliseconds later. The runtime keeps the two functions linkable for this use
// (gVisor sleeps the same way). Between them no stack may grow, so everything here
// is nosplit.
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

// wake wakes all who sleep on the bell. It never blocks, so the scheduler need
// not know.
func wake(bell *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(bell)), futexWake, math.MaxInt32, 0, 0, 0)
}
