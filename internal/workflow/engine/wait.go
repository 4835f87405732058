package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Result is the outcome of an execution.
type Result struct {
	ID     ID
	Status core.Status
	// Output is a JSON value. If it is nothing but a reference to a large value, or is itself too
	// large, Value describes it.
	Output json.RawMessage
	Value  *core.Value
	Error  *dsl.Error
}

// Wait waits for an execution's end, wherever it runs.
func (e *Engine) Wait(ctx context.Context, id ID) (Result, error) {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		if r := e.running(id); r != nil {
			if result, ok := e.waitLocally(ctx, r); ok {
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

// waitLocally waits for an execution on this node. It reports false if the execution leaves the
// node.
func (e *Engine) waitLocally(ctx context.Context, r *executor) (Result, bool) {
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
		if held := r.values.get(ref.Step); held != nil && held.value.Size == ref.Size {
			is := held.value
			result.Value = &is
		}
	}
	return result, true
}

func resultOf(id ID, f *core.Finished, events []core.Event) Result {
	result := Result{ID: id, Status: f.Status, Output: f.Output, Value: f.Value, Error: f.Error}
	if ref, ok := reference(f.Output); ok && result.Value == nil {
		known := newValues(nil, "", nil)
		for _, event := range events {
			known.addRecorded(event)
		}
		if held := known.get(ref.Step); held != nil && held.value.Size == ref.Size {
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

// Cancel ends an execution, and returns when that is recorded. Running steps are cancelled. Another
// node that owns the execution learns of it by Refresh, or else when its next append is refused.
func (e *Engine) Cancel(ctx context.Context, id ID, reason string) error {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
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
		r.inbox.post(func() { r.apply(event) })
		r.slot.expedite()
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
	return e.cancelRemotely(ctx, id, events, event)
}

// Refresh makes an execution that runs here reload its log after another node has recorded its end.
func (e *Engine) Refresh(ctx context.Context, id ID) error {
	r := e.running(id)
	if r == nil {
		return nil
	}
	records, err := e.opts.Log.Read(ctx, r.recorder.writer.key)
	if err != nil || !finished(records) {
		return err
	}
	events, err := decode(records)
	if err != nil {
		return err
	}
	r.inbox.post(func() { r.restart(events, records[len(records)-1].Seq) })
	r.slot.expedite()
	return nil
}

// cancelRemotely records the end in the log, which fences off the node that owns the execution.
func (e *Engine) cancelRemotely(ctx context.Context, id ID, events []core.Event, event core.Event) (bool, error) {
	r, err := e.replay(ctx, id, events)
	if err != nil {
		return false, err
	}
	records, err := e.opts.Log.Read(ctx, r.recorder.writer.key)
	if err != nil || len(records) != len(events) {
		return false, err
	}
	r.recorder.writer.seq = records[len(records)-1].Seq
	r.apply(event)
	if len(r.recorder.entries) == 0 {
		return true, nil
	}
	if err := r.recorder.record(ctx, r.recorder.entries); err != nil {
		return false, nil //nolint:nilerr // Something else was recorded, perhaps the end: look again.
	}
	e.cancelChildren(r)
	return true, e.opts.Claims.Release(ctx, id)
}
