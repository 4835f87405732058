package function

import (
	"context"
	"testing"
)

// A function that was warmed answers its first call with an instance that is there.
func TestWarm(t *testing.T) {
	r := open(t, Options{})
	f := deploy(t, r, goGuest(t, "app"), Limits{})
	for range 2 { // the second time there is one already
		if err := f.Warm(); err != nil {
			t.Fatal(err)
		}
	}
	p, err := f.Call(context.Background(), Request{Body: []byte("count")})
	if err != nil || string(p.Body) != "1" {
		t.Fatalf("got %q, %v", p.Body, err)
	}
	if p.Cost.Start != Reset {
		t.Errorf("the first call made its instance: %v", p.Cost.Start)
	}
	if slots, _ := f.Idle(); slots != 1 {
		t.Errorf("%d instances, want 1", slots)
	}
}
