package opencl

import (
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// clock places the device's times on this machine's CLOCK_MONOTONIC.
type clock struct{ offset int64 }

func monotonic() uint64 { return readClock(unix.CLOCK_MONOTONIC) }

func readClock(id int32) uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return uint64(t.Nano())
}

// init compares the clocks, where the driver can tell its own.
func (k *clock) init(w *Worker) {
	if !w.drv.Has(fnClGetDeviceAndHostTimer) {
		return
	}
	w.frame.Reset()
	b, err := w.frame.Bytes(16)
	if err != nil {
		return
	}
	before := monotonic()
	if int32(w.drv.Call(fnClGetDeviceAndHostTimer, w.device, driver.Address(b), driver.Address(b[8:]))) != clSuccess {
		return
	}
	after := monotonic()
	k.offset = int64(before+(after-before)/2) - int64(word(b))
}

// near is how far a device's time may be from a clock of ours to be its reading.
const near = 10e9

// guess sets the offset from the time at which a command was queued, for drivers
// that can't tell their clock but use one of the machine's.
func (k *clock) guess(queued uint64) {
	for _, id := range []int32{unix.CLOCK_MONOTONIC, unix.CLOCK_MONOTONIC_RAW, unix.CLOCK_BOOTTIME, unix.CLOCK_REALTIME} {
		if now := readClock(id); now-queued < near {
			k.offset = int64(monotonic()) - int64(now)
			return
		}
	}
}

// host is the time at which this machine's clock stood when the device's said t.
func (k *clock) host(t uint64) uint64 {
	if k.offset == 0 {
		k.guess(t)
	}
	return uint64(int64(t) + k.offset)
}

func (w *Worker) doHello(m *message, a *argsHello) error {
	c := w.begin(m)
	if a.Protocol != Protocol {
		return w.malformed(m, errProtocolVersion(a.Protocol))
	}
	return w.reply(c, clSuccess, (&replyHello{WorkerClock: monotonic()}).encode(c.body))
}

func (w *Worker) doClock(m *message, _ *argsClock) error {
	c := w.begin(m)
	return w.reply(c, clSuccess, (&replyClock{WorkerClock: monotonic()}).encode(c.body))
}
