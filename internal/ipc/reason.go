package ipc

import "github.com/outboard-run/outboard"

// A Reason is the body of a message that says why something ended; its zero value says that it
// ended as it should.
type Reason struct {
	Kind  outboard.Kind `json:"reason_kind,omitempty"`
	Error string        `json:"reason,omitempty"`
}

// ReasonOf returns the Reason of an error, of nil as well.
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
