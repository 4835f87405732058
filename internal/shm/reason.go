package shm

import (
	"fmt"
	"io"

	"github.com/outboard-run/outboard"
)

// Reason is the reason that a ring was closed. It is part of the layout: 0 is a clean close, any
// other value is 1 + an [outboard.Kind].
type Reason uint32

// The reasons that the ring itself uses. All other reasons come from kinds.
const (
	// Done is a clean close: committed bytes can still be read.
	Done Reason = 0
	// Corrupt means that the peer wrote invalid values into the control page.
	Corrupt = 1 + Reason(outboard.Protocol)
)

// ReasonOf returns the reason for err's kind, and Done for nil and io.EOF.
func ReasonOf(err error) Reason {
	if err == nil || err == io.EOF { //nolint:errorlint // a wrapped EOF is premature
		return Done
	}
	return 1 + Reason(outboard.KindOf(err))
}

// Err returns the error of a ring that was closed for this reason, io.EOF for Done.
func (r Reason) Err() error {
	if r == Done {
		return io.EOF
	}
	return &outboard.Error{Op: "ring", Kind: r.Kind(), Err: fmt.Errorf("closed: %v", r)}
}

// Kind returns the kind of error that the reason carries, Other for Done.
func (r Reason) Kind() outboard.Kind {
	if r == Done || r-1 > maxKind {
		return outboard.Other
	}
	return outboard.Kind(r - 1)
}

const maxKind = 1<<16 - 1

func (r Reason) String() string {
	if r == Done {
		return "done"
	}
	return r.Kind().String()
}
