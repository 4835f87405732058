package shm

import (
	"fmt"
	"io"

	"github.com/outboard-run/outboard"
)

// Reason says why a ring was closed. It is part of the layout: 0 is a clean end,
// any other value is 1 + an [outboard.Kind].
type Reason uint32

// The reasons that the ring itself knows. All others come from kinds.
const (
	// Done is a clean end: what was committed can still be read.
	Done Reason = 0
	// Corrupt is a peer that wrote nonsense into the control page.
	Corrupt = 1 + Reason(outboard.Protocol)
)

// ReasonOf gives the reason that carries err's kind; a nil error and io.EOF are
// a clean end.
func ReasonOf(err error) Reason {
	if err == nil || err == io.EOF { //nolint:errorlint // an EOF that is wrapped came too early
		return Done
	}
	return 1 + Reason(outboard.KindOf(err))
}

// Err is what a user of a ring closed for this reason gets: io.EOF for Done.
func (r Reason) Err() error {
	if r == Done {
		return io.EOF
	}
	return &outboard.Error{Op: "ring", Kind: r.Kind(), Err: fmt.Errorf("closed: %v", r)}
}

// Kind is the kind of error that the reason carries; Other for a clean end.
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
