package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/engine/enginetest"
)

// openLog opens a log in an embedded server of its own.
func openLog(t testing.TB) *state.Log {
	t.Helper()
	l, err := statetest.Open(t).OpenLog(t.Context(), "executions", state.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRealLog runs executions over the log that a pool has, and takes one over.
func TestRealLog(t *testing.T) {
	log := openLog(t)
	use := func(o *engine.Options) { o.Log = log }
	reached := make(chan struct{}, 1)
	w := open(t, echo, use, func(o *engine.Options) {
		o.Functions = enginetest.Functions{F: func(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
			if c.Path == "b" {
				reached <- struct{}{}
				<-ctx.Done()
				return engine.Outcome{}, ctx.Err()
			}
			return engine.Outcome{Body: c.Body}, nil
		}}
	})
	id := w.start(`do: [{a: {call: f}}, {b: {call: f}}, {c: {call: f}}]`, `7`)
	<-reached
	other := w.on(w.pool.Node("quay"), echo, use)
	w.node.Kill()
	got, err := other.Wait(t.Context(), id)
	if err != nil || got.Status != core.Completed || string(got.Output) != `7` {
		t.Errorf("got %+v, %v", got, err)
	}
	x, err := other.Get(t.Context(), id)
	if err != nil || len(x.Tenures) != 2 || x.Tenures[1].Node != "quay" || x.Tenures[1].Reason != "node harbour has left" {
		t.Errorf("got %+v, %v", x.Tenures, err)
	}
	if list, err := other.List(t.Context(), engine.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("got %+v, %v", list, err)
	}
}

// BenchmarkHandover measures the time from the end of a durable step to the
// beginning of the next one: over the log of an embedded server, and over one in
// memory, which is what the engine itself costs.
func BenchmarkHandover(b *testing.B) {
	for _, c := range []struct {
		name string
		real bool
		size int
	}{{"log", true, 0}, {"memory", false, 0}, {"log/128KiB", true, 128 << 10}} {
		b.Run(c.name, func(b *testing.B) { benchHandover(b, c.real, c.size) })
	}
}

func benchHandover(b *testing.B, real bool, size int) {
	const steps = 50
	var text strings.Builder
	text.WriteString("do:\n")
	for i := range steps {
		fmt.Fprintf(&text, "  - s%d: {call: f}\n", i)
	}
	h := &handovers{result: strings.Repeat("x", size)}
	w := open(b, h.call, func(o *engine.Options) {
		if real {
			o.Log = openLog(b)
		}
	})
	w.pool.Deploy("app", "flow", parse(b, text.String()))
	for b.Loop() {
		h.ended = time.Time{}
		id, err := w.engine.Start(b.Context(), engine.StartRequest{App: "app", Workflow: "flow", Input: []byte(`{"n": 1}`)})
		if err != nil {
			b.Fatal(err)
		}
		if result, err := w.engine.Wait(b.Context(), id); err != nil || result.Status != core.Completed {
			b.Fatal(result, err)
		}
	}
	slices.Sort(h.times)
	b.ReportMetric(float64(h.times[len(h.times)/2].Nanoseconds())/1000, "p50-us")
	b.ReportMetric(float64(h.times[len(h.times)*99/100].Nanoseconds())/1000, "p99-us")
}

type handovers struct {
	mu     sync.Mutex
	result string
	ended  time.Time
	times  []time.Duration
}

func (h *handovers) call(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended.IsZero() {
		h.times = append(h.times, time.Since(h.ended))
	}
	out := engine.Outcome{Body: []byte(`{"n": 1}`)}
	if h.result != "" {
		at := n.Arena(c.Execution, []byte(h.result))
		out = engine.Outcome{At: &at}
	}
	h.ended = time.Now()
	return out, nil
}
