package shm

import (
	"math"
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

// wait sleeps while the bell still has the value old, at most for limit. It may
// return early for any reason: the caller looks again.
func wait(bell *atomic.Uint32, old uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(limit))
	futexSleep(bell, old, &ts)
}

// futexSleep gives the processor (the P of Go's scheduler) away before it sleeps.
// With an ordinary system call the sleeper keeps it until the scheduler's monitor
// takes it back, 20 microseconds to 10 milliseconds later: with as many sleepers
// as processors nothing else runs meanwhile, and the monitor, which then never
// rests, takes time from the other processes. The runtime keeps the two functions
// linkable for this use (gVisor sleeps the same way). Between them no stack may
// grow, so everything here is nosplit.
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
