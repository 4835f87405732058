package calibrate

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// Wait is a call that waits for the device, which is idle, after a pause of the program. Times are
// in ns, and means rather than medians: the waits of a program add up, and their distribution is
// skewed.
type Wait struct {
	// Pause is the time since the previous call.
	Pause float64 `json:"pause_ns"`
	// Driver is the time in the driver: the whole call if there is no session.
	Driver float64 `json:"driver_ns"`
	// Wire is the time of request and reply in transit, and in the calls that wake the next process on
	// their way: the rest of the call.
	Wire float64 `json:"wire_ns"`
	// Command is how much longer the driver takes for a small write and a wait for it after the same
	// pause; Second is how much later the wait's message is executed than by itself, the write's
	// execution included.
	Command float64 `json:"command_ns"`
	Second  float64 `json:"second_ns"`
}

// Waits are such calls after growing pauses.
type Waits [len(pauses)]Wait

// pauses are the requested pauses of Waits.
var pauses = [...]time.Duration{
	0, 50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 400 * time.Microsecond, 800 * time.Microsecond,
	1600 * time.Microsecond, 3200 * time.Microsecond, 12800 * time.Microsecond,
}

const (
	// WaitsEach is the number of waits after each pause.
	WaitsEach = 60
	// longWait is the size of a read, in bytes, that takes longer through relays than the driver
	// library spins for an answer.
	longWait = 512 << 10
	// smallWrite is the size of a write, in bytes, whose transfer takes no time worth mentioning.
	smallWrite = 256
	// recordingAge is longer than a worker keeps what it has recorded (internal/accel/opencl/tracer.go).
	recordingAge = 300 * time.Millisecond
)

// MeasureWaits times calls that wait, on the first device of the system's OpenCL loader. The times
// are right for the machine's own driver; for a session, [ReadWaits] takes them from the trace of
// this process.
func MeasureWaits(library string) (Waits, error) {
	p, err := load(library)
	if err != nil {
		return Waits{}, err
	}
	p.open()
	into, err := driver.Alloc(longWait)
	if err != nil {
		return Waits{}, err
	}
	defer driver.Free(into)
	other := p.create(createQueue, p.context, p.device, 0)
	var w Waits
	for i, pause := range pauses {
		w[i] = p.waitsAfter(pause, other, into)
	}
	p.completeRecording(into)
	return w, p.err
}

// completeRecording makes the worker send what it has recorded so far: it sends old entries whenever
// its client sends nothing. At the end of a program in Go the driver library's destructor, which
// asks for them, does not run.
func (p *program) completeRecording(into []byte) {
	for range 2 { // the second answer follows the entries that the first one left
		time.Sleep(recordingAge)
		p.call(readBuffer, p.queue, p.buffer, 1, 0, 8, driver.Address(into), 0, 0, 0)
	}
}

// waitsAfter measures waits for a queue that has had no command, so that no wait is answered
// locally, in turn with a small write to another queue and a wait for that.
func (p *program) waitsAfter(pause time.Duration, other uintptr, into []byte) Wait {
	var paused, took, written []float64
	for range WaitsEach {
		paused = append(paused, p.pause(pause, other, into))
		began := time.Now()
		p.call(finish, p.queue)
		took = append(took, float64(time.Since(began)))
		p.pause(pause, other, into)
		began = time.Now()
		p.call(writeBuffer, other, p.buffer, 0, 0, smallWrite, driver.Address(into), 0, 0, 0)
		p.call(finish, other)
		written = append(written, float64(time.Since(began)))
	}
	return Wait{Pause: typical(paused), Driver: typical(took), Command: typical(written) - typical(took)}
}

// pause waits without calls, and returns for how long. The thread sleeps in the kernel: the runtime's
// timers would round up to a millisecond.
//
// The driver library spins while waits are short, which waits over a network are not. So each pause
// follows a long wait, which ends the spinning; without a pause, waits follow each other immediately.
func (p *program) pause(pause time.Duration, other uintptr, into []byte) float64 {
	if pause == 0 {
		return 0
	}
	p.call(readBuffer, other, p.buffer, 1, 0, longWait, driver.Address(into), 0, 0, 0)
	ended := time.Now()
	at := unix.NsecToTimespec(int64(pause))
	_ = unix.Nanosleep(&at, nil) // the actual pause is measured
	return float64(time.Since(ended))
}

// Records is a trace that is read once, as a [trace.Reader] is.
type Records interface {
	Header() *trace.Header
	Next() (trace.Record, error)
}

// ReadWaits returns the waits of a trace of [MeasureWaits]. The trace divides a call's time between
// transit and driver, with the definitions that a prediction from traces uses; the program sees
// only their sum.
func ReadWaits(src Records) (Waits, error) {
	var w Waits
	var all waitReader
	for {
		r, err := src.Next()
		switch {
		case errors.Is(err, io.EOF):
			return w, all.means(&w)
		case err != nil:
			return w, fmt.Errorf("calibrate: %w", err)
		}
		if err := all.add(src.Header().Ops[r.Op].Name, &r); err != nil {
			return w, err
		}
	}
}

// waitReader collects the waits of a trace, in ns.
type waitReader struct {
	count                int
	paused, driver, took []float64
	// written are writes with a wait, commands the driver's part of them, and after
	// that of the wait.
	written, commands, after []float64
	write                    trace.Record // before a wait; its Begin is 0 for none
}

func (w *waitReader) add(name string, r *trace.Record) error {
	if name == functions[writeBuffer] {
		w.write = *r
	}
	if r.Class != trace.WaitedFor || name != functions[finish] {
		return nil
	}
	if w.count++; w.count == 1 {
		return nil // the wait that ends the preparations
	}
	if r.WireForward == 0 && r.Execute == 0 && r.WireBackward == 0 {
		return fmt.Errorf("calibrate: the trace lacks the worker's times of wait %d", w.count)
	}
	driver := float64(max(0, r.Duration()-r.Encode-r.WireForward-r.WireBackward))
	if w.write.Begin != 0 {
		w.after, w.commands = append(w.after, driver), append(w.commands, driver+float64(w.write.Execute))
		w.written = append(w.written, float64(r.End-w.write.Begin))
		w.write.Begin = 0
		return nil
	}
	w.paused, w.driver = append(w.paused, float64(r.Gap)), append(w.driver, driver)
	w.took = append(w.took, float64(r.Duration()))
	return nil
}

// means sets the mean times after each pause. A message wakes the next process on its way with a
// system call that may return after the message has arrived; so that call is no part of the driver
// library's time, but of the wake-up.
func (w *waitReader) means(to *Waits) error {
	if n := len(to) * WaitsEach; len(w.took) != n || len(w.written) != n {
		return fmt.Errorf("calibrate: a trace of %d and %d waits: want %d", len(w.took), len(w.written), n)
	}
	for i := range to {
		mean := func(times []float64) float64 { return typical(times[i*WaitsEach : (i+1)*WaitsEach]) }
		took, driver := mean(w.took), mean(w.driver)
		to[i] = Wait{
			Pause: mean(w.paused), Driver: driver, Wire: took - driver,
			Command: mean(w.commands) - driver, Second: (mean(w.written) - mean(w.after)) - (took - driver),
		}
	}
	return nil
}

// typical returns the mean without the longest twentieth of the times, which count as disturbed.
func typical(times []float64) float64 {
	slices.Sort(times)
	times = times[:len(times)-len(times)/20]
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	return sum / float64(max(1, len(times)))
}
