package outboard

import (
	"errors"
	"fmt"
)

// Kind classifies an error for the code that must act on it. Its numbers are part of
// the wire: new ones are appended, none is reused.
type Kind uint16

// The kinds.
const (
	// Other is an error that nobody can act on by kind.
	Other Kind = iota
	// Invalid is a request that can never succeed as it stands.
	Invalid
	// NotFound is a name that means nothing here.
	NotFound
	// NoDevice says that no device of the pool meets a selector.
	NoDevice
	// Busy says that all devices that fit are leased.
	Busy
	// Denied is a missing, wrong or expired credential.
	Denied
	// LeaseLost says that a lease expired or was taken back.
	LeaseLost
	// Unreachable is a node or network that does not answer.
	Unreachable
	// SessionLost says that a session ended before its program did.
	SessionLost
	// Protocol is a peer that breaks the wire format.
	Protocol
	// NoPool says that no node runs here.
	NoPool
	// Exhausted is a limit reached: memory, sessions, sizes.
	Exhausted
	// Conflict is a change that lost against another one.
	Conflict
)

var kindNames = []string{
	"other", "invalid", "not_found", "no_device", "busy", "denied", "lease_lost",
	"unreachable", "session_lost", "protocol", "no_pool", "exhausted", "conflict",
}

// String is the kind's name in logs and JSON.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint16(k))
}

// Error is an error that crosses a package or process border.
type Error struct {
	// Op is what was being done and to what, "lease harbour/opencl/0".
	Op string
	// Kind says what sort of failure it is.
	Kind Kind
	// Err is the cause. It may be nil when Kind and Op say it all.
	Err error
}

// Errorf makes an Error whose cause is formatted as by fmt.Errorf.
func Errorf(kind Kind, op, format string, args ...any) *Error {
	return &Error{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}

func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Op + ": " + e.Kind.String()
	case e.Op == "":
		return e.Err.Error()
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the outermost Error in err's chain.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Other
}
