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
	// Wire is the time of request and reply in transit.
	Wire float64 `json:"wire_ns"`
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
// locally. The thread sleeps in the kernel: the runtime's timers would round up to a millisecond.
//
// The driver library spins while waits are short, which waits over a network are not. So each pause
// follows a long wait, for another queue, which ends the spinning; without a pause, waits follow
// each other immediately.
func (p *program) waitsAfter(pause time.Duration, other uintptr, into []byte) Wait {
	var paused, took []float64
	for range WaitsEach {
		if pause > 0 {
			p.call(readBuffer, other, p.buffer, 1, 0, longWait, driver.Address(into), 0, 0, 0)
		}
		ended := time.Now()
		if pause > 0 {
			at := unix.NsecToTimespec(int64(pause))
			_ = unix.Nanosleep(&at, nil) // the actual pause is measured
		}
		began := time.Now()
		p.call(finish, p.queue)
		paused, took = append(paused, float64(began.Sub(ended))), append(took, float64(time.Since(began)))
	}
	return Wait{Pause: typical(paused), Driver: typical(took)}
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
	var paused, driver, wire []float64
	op, count := functions[finish], 0
	for {
		r, err := src.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return w, fmt.Errorf("calibrate: %w", err)
		}
		if err != nil {
			break
		}
		if r.Class != trace.WaitedFor || src.Header().Ops[r.Op].Name != op {
			continue
		}
		if count++; count == 1 {
			continue // the wait that ends the preparations
		}
		if r.WireForward == 0 && r.Execute == 0 && r.WireBackward == 0 {
			return w, fmt.Errorf("calibrate: the trace lacks the worker's times of wait %d", count)
		}
		there := r.Encode + r.WireForward
		paused = append(paused, float64(r.Gap))
		driver = append(driver, float64(max(0, r.Duration()-there-r.WireBackward)))
		wire = append(wire, float64(r.WireForward+r.WireBackward))
	}
	if len(wire) != len(w)*WaitsEach {
		return w, fmt.Errorf("calibrate: a trace of %d waits: want %d", len(wire), len(w)*WaitsEach)
	}
	for i := range w {
		from, to := i*WaitsEach, (i+1)*WaitsEach
		w[i] = Wait{typical(paused[from:to]), typical(driver[from:to]), typical(wire[from:to])}
	}
	return w, nil
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
