package engine

import (
	"errors"

	"github.com/outboard-run/outboard"
)

// A Crash is the error of a call that a model's process was executing when it ended. The call may be
// the cause, so a caller that repeats it with ever more processes would end all of them.
type Crash struct {
	// Reason is why the process ended; its kind is outboard.Unreachable.
	Reason error
}

// Error implements error.
func (c *Crash) Error() string { return c.Reason.Error() }

// Unwrap returns the reason.
func (c *Crash) Unwrap() error { return c.Reason }

// MaxCrashes is the number of processes that may end while they execute a call. One of them may have
// ended for another reason, such as another client's call in the same batch.
const MaxCrashes = 2

// ErrCrashes returns the error of a call after MaxCrashes processes of a model have ended while they
// executed it. It is not to be repeated.
func ErrCrashes(op, name string, last error) error {
	return outboard.Errorf(outboard.Other, op,
		"%d processes of the model %s have ended while they executed this request, so it is not tried again: %w", MaxCrashes, name, last)
}

// IsCrash reports whether a model's process ended while it executed the call that returned err.
func IsCrash(err error) bool {
	_, ok := errors.AsType[*Crash](err)
	return ok
}
