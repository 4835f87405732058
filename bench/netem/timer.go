package netem

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timer is a timer of the kernel (timerfd_create(2)), which is more exact than time.Sleep: the
// runtime's timers may be a millisecond late when no other goroutine runs. The runtime polls it as
// it polls sockets. A goroutine in nanosleep(2) would keep its processor of the runtime, so that
// with a sleeping goroutine for each direction no goroutine could read what arrives until the
// runtime's monitor takes a processor back, up to 10 ms later.
type timer struct {
	file *os.File // nil: the kernel has no more descriptors, and time.Sleep is used
	stop func()
}

func (t *timer) init() {
	t.stop = func() {}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return
	}
	t.file = os.NewFile(uintptr(fd), "timerfd")
	t.stop = sync.OnceFunc(func() { _ = t.file.Close() })
}

// sleepUntil sleeps until due, or until done is closed and the timer is stopped. It returns false if
// due is over already. One goroutine at a time may call it.
func (t *timer) sleepUntil(due time.Time, done <-chan struct{}) (slept bool) {
	var expirations [8]byte
	for ; ; slept = true {
		left := time.Until(due)
		if left <= 0 {
			return slept
		}
		select {
		case <-done:
			return slept
		default:
		}
		if t.arm(left) != nil {
			time.Sleep(min(left, time.Millisecond))
			continue
		}
		_, _ = t.file.Read(expirations[:]) // it fails when the timer is stopped: done is closed
	}
}

// arm makes the timer expire once after d.
func (t *timer) arm(d time.Duration) error {
	if t.file == nil {
		return os.ErrInvalid
	}
	raw, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	})
	if err != nil {
		return err
	}
	return failed
}
