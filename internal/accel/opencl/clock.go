package opencl

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// clock converts the device's times to this machine's CLOCK_MONOTONIC.
type clock struct {
	offset int64
	known  bool
}

func monotonic() uint64 { return readClock(unix.CLOCK_MONOTONIC) }

func readClock(id int32) uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return uint64(t.Nano())
}

// fastClock reads CLOCK_MONOTONIC without a system call, which costs more in the sandbox than most
// messages: the Go runtime reads the same clock from memory (vDSO), but tells only differences.
type fastClock struct {
	origin      time.Time
	at          time.Duration // CLOCK_MONOTONIC at origin
	uncertainty time.Duration // of at
}

// newFastClock compares the clocks a few times: between two readings the thread may lose its
// processor.
func newFastClock() fastClock {
	best := fastClock{uncertainty: math.MaxInt64}
	for range 8 {
		origin := time.Now()
		at := time.Duration(monotonic())
		if half := time.Since(origin)/2 + 1; half < best.uncertainty {
			best = fastClock{origin, at - half, half}
		}
	}
	return best
}

func (c fastClock) now() time.Duration { return c.at + time.Since(c.origin) }

// init compares the clocks, if the driver can read the device's.
func (k *clock) init(drv *driver.Table, frame *driver.Frame, device uintptr) {
	if !drv.Has(fnClGetDeviceAndHostTimer) {
		return
	}
	frame.Reset()
	b, err := frame.Bytes(16)
	if err != nil {
		return
	}
	before := monotonic()
	if int32(drv.Call(fnClGetDeviceAndHostTimer, device, driver.Address(b), driver.Address(b[8:]))) != clSuccess {
		return
	}
	after := monotonic()
	k.offset, k.known = int64(before+(after-before)/2)-int64(firstWord(b)), true
}

// maxClockDistance is how far a device's time may be from a clock of this machine to count as its
// reading, in ns.
const maxClockDistance = 10e9

// guessSource finds the clock of this machine that a driver without clGetDeviceAndHostTimer
// uses: the clock with the least distance past the end of a command that has just completed.
func (k *clock) guessSource(end uint64) {
	best := uint64(maxClockDistance)
	for _, id := range []int32{unix.CLOCK_MONOTONIC, unix.CLOCK_MONOTONIC_RAW, unix.CLOCK_BOOTTIME, unix.CLOCK_REALTIME} {
		if now := readClock(id); now-end < best {
			best = now - end
			k.offset = int64(monotonic()) - int64(now)
		}
	}
}

// toMonotonic converts times of the device to CLOCK_MONOTONIC. The last one is the end of a
// command that has just completed.
func (k *clock) toMonotonic(times []uint64) []uint64 {
	if !k.known && len(times) > 0 {
		k.known = true
		k.guessSource(times[len(times)-1])
	}
	for i := range times {
		times[i] = uint64(int64(times[i]) + k.offset)
	}
	return times
}
