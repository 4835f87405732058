package trace

import (
	"fmt"

	"github.com/outboard-run/outboard/internal/wire"
)

// Form is the encoding of a field in a message's body.
type Form uint8

// The forms.
const (
	// Word is a scalar.
	Word Form = iota
	// Object is the id of an object, 0 for none.
	Object
	// Words and Halves are arrays of 8- and 4-byte elements.
	Words
	Halves
	// Bytes is an array of bytes; an event holds only its size.
	Bytes
)

// Field is one field of a message.
type Field struct {
	Name string
	Form Form
}

// Call describes one message.
type Call struct {
	Name string
	// Answer is the description's word for when, and by which side, the call is answered.
	Answer string
	Fields []Field
}

// Event is one decoded message.
type Event struct {
	Call   string         `json:"call"`
	Answer string         `json:"answer"`
	Fields map[string]any `json:"fields"`
}

// Read decodes the body of a message with number op, which table describes.
func Read(table map[uint16]Call, op uint16, body []byte) (Event, error) {
	call, ok := table[op]
	if !ok {
		return Event{}, fmt.Errorf("trace: message %#x is not described", op)
	}
	e := Event{Call: call.Name, Answer: call.Answer, Fields: make(map[string]any, len(call.Fields))}
	d := wire.NewDecoder(body)
	for _, f := range call.Fields {
		e.Fields[f.Name] = f.read(&d)
	}
	if err := d.Done(); err != nil {
		return Event{}, fmt.Errorf("trace: %s: %w", call.Name, err)
	}
	return e, nil
}

func (f Field) read(d *wire.Decoder) any {
	switch f.Form {
	case Words:
		return d.Words()
	case Halves:
		return d.Halves()
	case Bytes:
		return len(d.Bytes())
	}
	return d.U64()
}
