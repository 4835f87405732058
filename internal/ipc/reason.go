package ipc

import "github.com/outboard-run/outboard"

// A Reason is the body of a message that reports why a session or a lease was refused or has ended;
// its zero value is a regular end.
type Reason struct {
	Kind  outboard.Kind `json:"reason_kind,omitempty"`
	Error string        `json:"reason,omitempty"`
}

// ReasonOf returns the Reason of an error, the zero value for nil.
func ReasonOf(err error) Reason {
	if err == nil {
		return Reason{}
	}
	return Reason{Kind: outboard.KindOf(err), Error: shortened(err.Error())}
}

// Err returns the error of a Reason, nil for its zero value.
func (r Reason) Err() error {
	if r.Error == "" {
		return nil
	}
	return outboard.Errorf(r.Kind, "", "%s", r.Error)
}
