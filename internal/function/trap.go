package function

import "strings"

// stackTitle is the engine's text between a trap's reason and the functions that were running.
const stackTitle = "\nwasm stack trace:"

// readable removes the stack trace from a trap if no function in it has a name, as in a stripped
// module.
func readable(err error) error {
	_, stack, ok := strings.Cut(err.Error(), stackTitle)
	if !ok || named(stack) {
		return err
	}
	return unstacked{err}
}

func named(stack string) bool {
	for line := range strings.Lines(stack) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ".$") {
			return true
		}
	}
	return false
}

// unstacked is an error without the stack that the engine adds to a trap's text.
type unstacked struct{ error }

func (e unstacked) Error() string {
	text, _, _ := strings.Cut(e.error.Error(), stackTitle)
	return text
}

func (e unstacked) Unwrap() error { return e.error }
