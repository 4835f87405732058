package node

import (
	"testing"

	"github.com/outboard-run/outboard"
)

// The requests for models that a node serves at a time are bounded, and one client does not get
// those of all.
func TestRequestsForModelsAreBounded(t *testing.T) {
	q := &modelRequests{}
	var leave []func()
	enter := func(client string, want outboard.Kind) {
		t.Helper()
		release, err := q.enter(client)
		if (err == nil) != (want == outboard.Other) || err != nil && outboard.KindOf(err) != want {
			t.Fatalf("with %d requests, another of %s: %v", q.all, client, err)
		}
		if err == nil {
			leave = append(leave, release)
		}
	}
	for _, client := range []string{"a", "b"} {
		for range maxClientRequests {
			enter(client, outboard.Other)
		}
		if client == "a" {
			enter("a", outboard.Busy)
		}
	}
	enter("c", outboard.Busy)
	leave[0]()
	leave = leave[1:]
	enter("c", outboard.Other)
	for _, release := range leave {
		release()
	}
	if q.all != 0 || len(q.clients) != 0 {
		t.Errorf("%d requests of %d clients are counted", q.all, len(q.clients))
	}
}
