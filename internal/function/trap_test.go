package function

import (
	"errors"
	"testing"
)

// A trap tells its stack where that says something.
func TestReadable(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no stack":   {"wasm error: unreachable", "wasm error: unreachable"},
		"no names":   {"wasm error: unreachable\nwasm stack trace:\n\t.$12(i32) i32\n\t.$3()", "wasm error: unreachable"},
		"some names": {"wasm error: unreachable\nwasm stack trace:\n\t.$12(i32) i32\n\t.main()", "wasm error: unreachable\nwasm stack trace:\n\t.$12(i32) i32\n\t.main()"},
	} {
		t.Run(name, func(t *testing.T) {
			trap := errors.New(test.text)
			got := readable(trap)
			if got.Error() != test.want || !errors.Is(got, trap) {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}
