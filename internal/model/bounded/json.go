package bounded

import (
	"encoding/json"

	"github.com/outboard-run/outboard"
)

// maxList is the most elements of a [List].
const maxList = 4096

// A List is a list in JSON that is refused before it is decoded if it has too many elements.
type List[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *List[T]) UnmarshalJSON(text []byte) error {
	if err := Members(text, 1, maxList); err != nil {
		return err
	}
	return json.Unmarshal(text, (*[]T)(l))
}

// A Map is an object in JSON that is refused before it is decoded if it has too many members.
type Map[T any] map[string]T

// UnmarshalJSON implements json.Unmarshaler.
func (m *Map[T]) UnmarshalJSON(text []byte) error {
	if err := Members(text, 1, maxList); err != nil {
		return err
	}
	return json.Unmarshal(text, (*map[string]T)(m))
}

// Members returns an error of the kind outboard.Invalid if the objects and arrays of a JSON text,
// down to a depth, have more than most members and elements together. The text itself has depth 1.
// The text need not be valid.
func Members(text []byte, depth, most int) error {
	var s Scanner
	for _, c := range text {
		if !s.next(c) || s.depth > depth {
			continue
		}
		if most--; most < 0 {
			return outboard.Errorf(outboard.Invalid, "", "the JSON has too many members and elements")
		}
	}
	return nil
}

// A Scanner counts the values of a JSON text that comes in parts. The zero value expects the
// beginning of a text.
type Scanner struct {
	depth   int
	text    bool // within a string
	escaped bool // after a backslash
}

// Values returns the number of values that begin in a part of the text, about: members and elements
// count when the comma or bracket before them is scanned.
func (s *Scanner) Values(part []byte) (n int64) {
	for _, c := range part {
		if s.next(c) {
			n++
		}
	}
	return n
}

// next scans a byte. It reports whether a member or an element may follow: of the object or array at
// the scanner's depth.
func (s *Scanner) next(c byte) bool {
	switch {
	case s.escaped:
		s.escaped = false
	case s.text:
		s.escaped = c == '\\'
		s.text = c != '"'
	case c == '"':
		s.text = true
	case c == '[' || c == '{':
		s.depth++
		return true
	case c == ']' || c == '}':
		s.depth--
	}
	return c == ',' && !s.text && !s.escaped
}
