package guest_test

import (
	"fmt"
	"testing"

	guest "github.com/outboard-run/outboard/guest/go"
)

func Example() {
	guest.Handle(func(request []byte) ([]byte, error) {
		return append([]byte("hello "), request...), nil
	})
	response, err := guest.Call([]byte("harbour"))
	fmt.Printf("%s, %v\n", response, err)
	// Output: hello harbour, <nil>
}

func TestNoHandler(t *testing.T) {
	guest.Handle(nil)
	if _, err := guest.Call(nil); err == nil {
		t.Error("a function without a handler answered")
	}
}

func TestRand(t *testing.T) {
	if a, b := guest.Rand().Uint64(), guest.Rand().Uint64(); a == b {
		t.Errorf("two sources begin with %d", a)
	}
}
