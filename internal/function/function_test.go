package function

import (
	"testing"

	"github.com/outboard-run/outboard/internal/function/image"
	"github.com/outboard-run/outboard/internal/need"
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

// TestFewPages: a call of a Go guest writes to few pages, so there is little to write
// back: a small request is not allocated, and the allocator's caches are in the image.
func TestFewPages(t *testing.T) {
	r := open(t, Options{})
	need.Require(t, "pagemap_scan", r.Reset() == image.Scan, "a kernel from Linux 6.7 on has it")
	const calls = 128
	for request, most := range map[string]float64{"echo hello": 5, `work [{"name":"x","count":1}]`: 66} {
		t.Run(request, func(t *testing.T) {
			f := deploy(t, r, goGuest(t, "app"), Limits{})
			repeat := func() {
				for range calls {
					if _, err := call(t, f, request); err != nil {
						t.Fatal(err)
					}
				}
			}
			repeat() // until the pages are known that calls write to
			before := f.Counts().CopiedBack
			repeat()
			if pages := float64(f.Counts().CopiedBack-before) / image.PageSize / calls; pages > most {
				t.Errorf("%.1f pages are written back after each call, at most %.0f would be well", pages, most)
			}
		})
	}
}
