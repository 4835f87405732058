package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/client"
)

const stepsApp = `app: steps
functions:
  pass: {module: pass.wasm}
  noted: {module: pass.wasm, imports: [{bucket: notes}]}
buckets: [notes]
workflows:
  pure: pure.yaml
  noted: noted.yaml
`

// fourSteps returns a workflow that calls one function in four steps.
func fourSteps(name, function string) []byte {
	text := fmt.Appendf(nil, "document: {dsl: 1.0.0, namespace: bench, name: %s, version: 1.0.0}\ndo:\n", name)
	for _, step := range []string{"first", "second", "third", "fourth"} {
		text = fmt.Appendf(text, "  - %s: {call: %s}\n", step, function)
	}
	return text
}

// handover measures the time from the end of one step of a durable workflow to the start of the
// next. A step with external effects starts when the preceding step is recorded, a step without
// effects may start before that.
func (b *bench) handover(ctx context.Context) error {
	a, err := b.app(ctx, stepsApp, map[string]string{"pass.wasm": passGuest})
	if err != nil {
		return err
	}
	a.files["pure.yaml"], a.files["noted.yaml"] = fourSteps("pure", "pass"), fourSteps("noted", "noted")
	return b.withStage(ctx, a, func(s *testNode) error {
		if err := b.handoverRows(ctx, s, "noted", "steps with effects"); err != nil {
			return err
		}
		return b.handoverRows(ctx, s, "pure", "steps without effects")
	})
}

func (b *bench) handoverRows(ctx context.Context, s *testNode, workflow, of string) error {
	var medians, tails, wholes []float64
	for round := range b.Rounds(7, 3) + 1 {
		hops, took, err := s.hops(ctx, workflow, b.Rounds(100, 30))
		if err != nil {
			return err
		}
		if round > 0 {
			medians, tails, wholes = append(medians, paired.Median(hops)), append(tails, quantile(hops, 0.99)), append(wholes, paired.Median(took))
		}
	}
	b.Row(paired.NewRow("hand-over between "+of+" of a durable workflow, p50", "ms", "", medians, nil, paired.Goal{Max: 1}))
	b.Row(paired.NewRow("hand-over between "+of+" of a durable workflow, p99", "ms", "", tails, nil, paired.Goal{}))
	b.Row(paired.NewRow("a durable workflow of four "+of+" that do nothing, p50", "ms", "", wholes, nil, paired.Goal{}))
	return nil
}

// hops runs n executions, and returns the durations of all hand-overs and of all executions in
// milliseconds.
func (s *testNode) hops(ctx context.Context, workflow string, n int) (hops, took []float64, err error) {
	for i := range n {
		e, err := s.run(ctx, "steps", workflow, map[string]int{"n": i})
		if err != nil {
			return nil, nil, err
		}
		of, err := hopsOf(e.Steps)
		if err != nil {
			return nil, nil, fmt.Errorf("execution %s: %w", e.ID, err)
		}
		hops = append(hops, of...)
		took = append(took, milli(e.Ended.Sub(e.Started)))
	}
	return hops, took, nil
}

// hopsOf returns the times between the calls of steps, in milliseconds.
func hopsOf(steps []client.Step) ([]float64, error) {
	var calls []client.Step
	for i := range steps {
		if steps[i].Kind == "call" {
			calls = append(calls, steps[i])
		}
	}
	slices.SortFunc(calls, func(a, b client.Step) int { return a.Started.Compare(b.Started) })
	if len(calls) != 4 {
		return nil, fmt.Errorf("it has %d calls, want 4: %+v", len(calls), steps)
	}
	var hops []float64
	for i := range len(calls) - 1 {
		ended := calls[i].Started.Add(time.Duration(calls[i].Took))
		hops = append(hops, milli(calls[i+1].Started.Sub(ended)))
	}
	return hops, nil
}

func milli(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile returns the smallest of values that at least a part of them do not exceed.
func quantile(values []float64, part float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(part*float64(len(s))))]
}
