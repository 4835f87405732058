package poolstate_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/poolstate"
)

// A listener that comes later gets the events in their order, each once, and nothing of other apps.
func TestEventsInOrder(t *testing.T) {
	s := statetest.Open(t)
	log, err := s.OpenLog(t.Context(), "events", state.LogOptions{MaxAge: poolstate.EventRetention})
	if err != nil {
		t.Fatal(err)
	}
	events := poolstate.Events{Tenant: "tea", State: s, Log: log}
	publish := func(app string, n int) {
		t.Helper()
		event := core.CloudEvent{"source": "test", "type": "order", "id": fmt.Sprint(n), "data": fmt.Sprint(app, n)}
		if err := events.Publish(t.Context(), app, event); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now().Add(-time.Minute)
	var want []any
	for n := range 30 {
		publish("shop", n)
		publish("other", n)
		want = append(want, fmt.Sprint("shop", n))
	}
	publish("shop", 3) // again, as after a takeover
	var mu sync.Mutex
	var got []any
	arrived := make(chan struct{}, 100)
	stop, err := events.Subscribe(t.Context(), "shop", begin, func(e core.CloudEvent) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, e["data"])
		arrived <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	publish("shop", 30)
	want = append(want, "shop30")
	for range want {
		<-arrived
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}
