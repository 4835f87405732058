package function

import (
	"testing"

	"github.com/outboard-run/outboard/internal/function/image"
)

func call(t testing.TB, f *Function, body string) (string, error) {
	t.Helper()
	p, err := f.Call(t.Context(), Request{Body: []byte(body)})
	return string(p.Body), err
}

func TestGoGuest(t *testing.T) {
	for name, method := range methods(t) {
		t.Run(name, func(t *testing.T) {
			r := open(t, Options{Reset: method})
			f := deploy(t, r, goGuest(t, "app"), Limits{})
			for range 5 {
				if got, err := call(t, f, "count"); err != nil || got != "1" {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			for range 20 {
				if got, err := call(t, f, "echo a b"); err != nil || got != "a b" {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			if c := f.Counts(); method == image.Scan && c.Quiet < 10 {
				t.Errorf("%d of 25 resets found the call quiet", c.Quiet)
			}
		})
	}
}
