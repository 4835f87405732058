package shm

import (
	"math"
	"sync/atomic"
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
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(bell)), futexWait, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// wake wakes all who sleep on the bell. It never blocks, so the scheduler need
// not know.
func wake(bell *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(bell)), futexWake, math.MaxInt32, 0, 0, 0)
}
