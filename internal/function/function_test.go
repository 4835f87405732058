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

// TestFewPages: a small request to Go's guest writes to few pages, so there is little to
// write back.
func TestFewPages(t *testing.T) {
	r := open(t, Options{})
	if r.Reset() != image.Scan {
		t.Skip("without a scan all pages are dropped")
	}
	f := deploy(t, r, goGuest(t, "pass"), Limits{})
	repeat := func(n int) {
		for range n {
			if p, err := f.Call(t.Context(), Request{Body: []byte("hello")}); err != nil || string(p.Body) != "hello" {
				t.Fatalf("got %q, %v", p.Body, err)
			}
		}
	}
	const calls = 128
	repeat(calls) // until the pages are known that calls write to
	before := f.Counts().CopiedBack
	repeat(calls)
	if pages := float64(f.Counts().CopiedBack-before) / image.PageSize / calls; pages > 5 {
		t.Errorf("%.1f pages are written back after each call", pages)
	}
}
