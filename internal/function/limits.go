package function

import (
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
)

// wasmPage is the unit of a WebAssembly memory.
const wasmPage = 64 << 10

// Limits bound one function. A field that is 0 means the default.
type Limits struct {
	// Memory is how large an instance's memory may grow. Default: 256 MiB.
	Memory outboard.Bytes
	// Deadline is how long a call may take, from the moment that it has a slot.
	// Default: 30 s.
	Deadline time.Duration
	// Fuel is how much a call may execute. A unit is about an instruction: on entry to a loop or a
	// function the call is charged its instructions up to the first branch, or a part of all, so
	// that no more than 32 instructions are executed for each unit. The charge is deterministic.
	// Default: no limit.
	Fuel int64
	// Concurrency is how many calls run at a time. Default: 8.
	Concurrency int
	// Queue is how many calls wait for their turn before others are refused.
	// Default: 64; a negative number means none.
	Queue int
	// Response is how many bytes a response may have. Default: 16 MiB.
	Response outboard.Bytes
	// Output is how many bytes of a call's standard output and standard error are kept, each.
	// Further bytes are counted and dropped. Default: 64 KiB.
	Output outboard.Bytes
}

func (l *Limits) setDefaults() {
	or := func(n *outboard.Bytes, standard outboard.Bytes) {
		if *n == 0 {
			*n = standard
		}
	}
	or(&l.Memory, 256<<20)
	or(&l.Response, 16<<20)
	or(&l.Output, 64<<10)
	if l.Deadline == 0 {
		l.Deadline = 30 * time.Second
	}
	if l.Concurrency == 0 {
		l.Concurrency = 8
	}
	switch {
	case l.Queue == 0:
		l.Queue = 64
	case l.Queue < 0:
		l.Queue = 0
	}
}

// Limits returns the function's limits, with the defaults filled in.
func (f *Function) Limits() Limits { return f.version.settings.Limits }

const maxMemory = 1<<32 - wasmPage // a size of 4 GiB is optimize.Yield

func (l *Limits) validate() error {
	switch {
	case l.Memory < wasmPage || l.Memory > maxMemory:
		return fmt.Errorf("memory limit of %v: want 64 KiB to 4 GiB less 64 KiB", l.Memory)
	case l.Deadline < 0 || l.Fuel < 0 || l.Concurrency < 0:
		return errors.New("a limit is negative")
	}
	return nil
}

// deadlineLimit is the name of Limits.Deadline.
const deadlineLimit = "deadline"

// LimitError says which limit of a function ended or refused a call. It is the
// cause of an outboard.Error of the kind Exhausted, or Busy for Concurrency.
type LimitError struct {
	// Limit is the limit's name in Limits, in lower case.
	Limit string
	// Allowed is the limit's value in readable form.
	Allowed string
	// Advice is the remedy.
	Advice string
}

// LimitName returns the limit's name, which tells a deadline from other limits where this type is
// not known.
func (e *LimitError) LimitName() string { return e.Limit }

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s limit of %s reached: %s", e.Limit, e.Allowed, e.Advice)
}

func (l *Limits) memoryError() error {
	return &LimitError{"memory", l.Memory.String(), "raise the function's memory limit, or keep less in memory during a call"}
}

func (l *Limits) deadlineError() error {
	return &LimitError{deadlineLimit, l.Deadline.String(), "raise the function's deadline, or do less in one call"}
}

func (l *Limits) fuelError() error {
	return &LimitError{"fuel", fmt.Sprintf("%d instructions", l.Fuel), "raise the function's fuel, or do less in one call"}
}

func (l *Limits) responseError() error {
	return &LimitError{"response", l.Response.String(), "raise the function's response limit, or answer in parts"}
}

func (l *Limits) concurrencyError() error {
	return &LimitError{
		"concurrency", fmt.Sprintf("%d calls at a time and %d waiting", l.Concurrency, l.Queue),
		"call again later, or raise the function's concurrency or queue",
	}
}

// maxDepth bounds the chain of functions that call each other before a call.
const maxDepth = 16

// errDepth ends functions that call each other in a circle.
var errDepth error = &LimitError{
	"depth", fmt.Sprintf("%d calls within calls", maxDepth), "have functions not call each other in a circle",
}
