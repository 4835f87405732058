package opencl

import (
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// clock places the device's times on this machine's CLOCK_MONOTONIC.
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

// init compares the clocks, where the driver can tell its own.
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
	k.offset, k.known = int64(before+(after-before)/2)-int64(word(b)), true
}

// near is how far a device's time may be from a clock of ours to be its reading.
const near = 10e9

// guess finds out which of the machine's clocks a driver uses that can't tell:
// the one that is the least past the end of a command that has just been seen
// to be complete.
func (k *clock) guess(end uint64) {
	best := uint64(near)
	for _, id := range []int32{unix.CLOCK_MONOTONIC, unix.CLOCK_MONOTONIC_RAW, unix.CLOCK_BOOTTIME, unix.CLOCK_REALTIME} {
		if now := readClock(id); now-end < best {
			best = now - end
			k.offset = int64(monotonic()) - int64(now)
		}
	}
}

// host turns times of the device into times of this machine's clock. The last
// one is that of a command's end, just now.
func (k *clock) host(times []uint64) []uint64 {
	if !k.known && len(times) > 0 {
		k.known = true
		k.guess(times[len(times)-1])
	}
	for i := range times {
		times[i] = uint64(int64(times[i]) + k.offset)
	}
	return times
}
