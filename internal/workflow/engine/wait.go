package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Result is how an execution ended.
type Result struct {
	ID     ID
	Status core.Status
	// Output is a JSON value. Where it is nothing but a reference to a large value,
	// or is itself too large, Value is what it is.
	Output json.RawMessage
	Value  *core.Value
	Error  *dsl.Error
}

// Wait waits for an execution's end, wherever it runs.
func (e *Engine) Wait(ctx context.Context, id ID) (Result, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if r := e.running(id); r != nil {
			if result, ok := e.waitHere(ctx, r); ok {
				return result, nil
			}
		}
		events, err := e.events(ctx, id)
		if err != nil {
			return Result{}, fmt.Errorf("wait for %s: %w", id, err)
		}
		if f := events[len(events)-1].Finished; f != nil {
			return resultOf(id, f, events), nil
		}
		if !sleep(ctx, pause) {
			return Result{}, fmt.Errorf("wait for %s: %w", id, ctx.Err())
		}
	}
}

// waitHere waits for an execution on this node. It reports false when that leaves.
func (e *Engine) waitHere(ctx context.Context, r *run) (Result, bool) {
	select {
	case <-r.done:
	case <-ctx.Done():
		return Result{}, false
	}
	if r.result == nil {
		return Result{}, false
	}
	result := Result{ID: r.id, Status: r.result.Status, Output: r.result.Output, Value: r.result.Value, Error: r.result.Error}
	if ref, ok := reference(result.Output); ok && result.Value == nil {
		if held := r.values.get(ref.Step); held != nil {
			is := held.value
			result.Value = &is
		}
	}
	return result, true
}

func resultOf(id ID, f *core.Finished, events []core.Event) Result {
	result := Result{ID: id, Status: f.Status, Output: f.Output, Value: f.Value, Error: f.Error}
	if ref, ok := reference(f.Output); ok && result.Value == nil {
		known := newValues()
		for _, event := range events {
			known.learn(event)
		}
		if held := known.get(ref.Step); held != nil {
			result.Value = &held.value
		}
	}
	return result
}

func reference(output json.RawMessage) (core.Reference, bool) {
	// A reference is short.
	if len(output) == 0 || len(output) > 1024 || output[0] != '{' {
		return core.Reference{}, false
	}
	data, err := core.Decode(output)
	if err != nil {
		return core.Reference{}, false
	}
	return core.ReferenceOf(data)
}

// Cancel ends an execution, and returns when that is recorded. Steps under way
// are stopped. Another node that has the execution hears of it by Look, or else when it
// records the next step.
func (e *Engine) Cancel(ctx context.Context, id ID, reason string) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		done, err := e.tryCancel(ctx, id, reason)
		if err != nil {
			return fmt.Errorf("cancel %s: %w", id, err)
		}
		if done {
			return nil
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("cancel %s: %w", id, ctx.Err())
		}
	}
}

func (e *Engine) tryCancel(ctx context.Context, id ID, reason string) (bool, error) {
	event := core.Event{Cancelled: &core.Cancelled{Reason: reason}}
	if r := e.running(id); r != nil {
		r.send(func() { r.happen(event) })
		r.hurry.Do(func() { close(r.hurried) })
		select {
		case <-r.done:
			return r.result != nil, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	events, err := e.events(ctx, id)
	if err != nil {
		return false, err
	}
	if events[len(events)-1].Finished != nil {
		return true, nil
	}
	return e.cancelElsewhere(ctx, id, events, event)
}

// Look has an execution that runs here find its end in the log, which another node has
// written, and stop.
func (e *Engine) Look(ctx context.Context, id ID) error {
	r := e.running(id)
	if r == nil {
		return nil
	}
	records, err := e.opts.Log.Read(ctx, r.key)
	if err != nil || !finished(records) {
		return err
	}
	events, err := decode(records)
	if err != nil {
		return err
	}
	r.send(func() { r.restart(events, records[len(records)-1].Seq) })
	r.hurry.Do(func() { close(r.hurried) })
	return nil
}

// cancelElsewhere writes the end into the log. The node that has the execution
// finds it there when it looks, and stops.
func (e *Engine) cancelElsewhere(ctx context.Context, id ID, events []core.Event, event core.Event) (bool, error) {
	r, err := e.replayed(ctx, id, events)
	if err != nil {
		return false, err
	}
	records, err := e.opts.Log.Read(ctx, r.key)
	if err != nil || len(records) != len(events) {
		return false, err
	}
	r.seq = records[len(records)-1].Seq
	r.happen(event)
	if len(r.entries) == 0 {
		return true, nil
	}
	if err := r.record(ctx, r.entries); err != nil {
		return false, nil //nolint:nilerr // Something else was recorded, perhaps the end: look again.
	}
	return true, e.opts.Claims.Release(ctx, id)
}
