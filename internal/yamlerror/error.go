package yamlerror

import "fmt"

// An Error is a mistake in a file, with its position.
type Error struct {
	File         string
	Line, Column int
	// Text is the mistake and its remedy.
	Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}
