package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/itchyny/gojq"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// values are an execution's large values by the steps that produced them.
// All methods may be called by several goroutines.
type values struct {
	store   Values
	id      ID
	failing *failing

	mu sync.Mutex
	by map[string]*value
}

// value is one large value.
type value struct {
	mu    sync.Mutex // held while it is loaded
	value core.Value
	place *Extent // where it is on this node, nil if it is not here
}

func newValues(store Values, id ID, all *failing) *values {
	return &values{store: store, id: id, failing: all, by: map[string]*value{}}
}

func (v *values) add(step string, is core.Value, at *Extent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.by[step] = &value{value: is, place: at}
}

// saved sets a value's digest.
func (v *values) saved(step, digest string) {
	if held := v.get(step); held != nil {
		held.mu.Lock()
		held.value.Digest = digest
		held.mu.Unlock()
	}
}

func (v *values) get(step string) *value {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.by[step]
}

// reset removes values that were not saved.
func (v *values) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for step, held := range v.by {
		if held.value.Digest == "" {
			delete(v.by, step)
		}
	}
}

// addRecorded adds the value of a record.
func (v *values) addRecorded(e core.Event) {
	step, is := "", (*core.Value)(nil)
	switch {
	case e.Started != nil:
		step, is = core.InputStep, e.Started.Value
	case e.Step != nil:
		step, is = e.Step.Path, e.Step.Value
	}
	if is == nil {
		return
	}
	if held := v.get(step); held == nil || held.value.Digest != is.Digest {
		v.add(step, *is, nil)
	}
}

// reference returns the reference that data encodes to one of the values. Data of that form that no
// step has produced is data like any other: it may come from anywhere.
func (v *values) reference(data any) (core.Reference, bool) {
	ref, ok := core.ReferenceOf(data)
	if !ok {
		return core.Reference{}, false
	}
	held := v.get(ref.Step)
	return ref, held != nil && held.value.Size == ref.Size
}

// locateValue returns the location of a value in this node's arena, and loads it if needed.
func (v *values) locateValue(ctx context.Context, ref core.Reference) (Extent, *value, error) {
	held := v.get(ref.Step)
	if held == nil {
		return Extent{}, nil, fmt.Errorf("the value of step %q: %w", ref.Step, ErrNotFound)
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	if held.place == nil {
		at, err := retry(ctx, v.failing, "load a value", func() (Extent, error) { return v.store.Load(ctx, v.id, held.value) })
		if err != nil {
			return Extent{}, nil, fmt.Errorf("the value of step %q: %w", ref.Step, err)
		}
		held.place = &at
	}
	return *held.place, held, nil
}

// request sets a call's body. A reference is passed by its location, a text as it is, null as
// nothing, and everything else as JSON.
func (v *values) request(ctx context.Context, body any, to *FunctionCall) error {
	if ref, ok := v.reference(body); ok {
		at, held, err := v.locateValue(ctx, ref)
		if err != nil {
			return err
		}
		to.At, to.Type = &at, held.value.Type
		if to.Type == "" {
			to.Type = "application/octet-stream"
		}
		return nil
	}
	switch body := body.(type) {
	case nil:
		return nil
	case string:
		to.Body, to.Type = []byte(body), "text/plain; charset=utf-8"
		return nil
	}
	located, err := v.addLocations(ctx, body)
	if err != nil {
		return err
	}
	to.Type = "application/json"
	to.Body, err = gojq.Marshal(located)
	return err
}

// addLocations adds to each reference within the data the location of its value in the arena.
func (v *values) addLocations(ctx context.Context, data any) (any, error) {
	switch data := data.(type) {
	case []any:
		out := make([]any, len(data))
		for i, e := range data {
			var err error
			if out[i], err = v.addLocations(ctx, e); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		if ref, ok := v.reference(data); ok {
			return v.locationOf(ctx, ref)
		}
		out := make(map[string]any, len(data))
		for k, e := range data {
			var err error
			if out[k], err = v.addLocations(ctx, e); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return data, nil
}

func (v *values) locationOf(ctx context.Context, ref core.Reference) (any, error) {
	at, held, err := v.locateValue(ctx, ref)
	if err != nil {
		return nil, err
	}
	number := func(n int64) json.Number { return json.Number(big.NewInt(n).String()) }
	inner := map[string]any{"step": ref.Step, "offset": number(at.Offset), "size": number(at.Size)}
	if held.value.Type != "" {
		inner["type"] = held.value.Type
	}
	return map[string]any{"$value": inner}, nil
}

// put copies bytes into the arena.
func (v *values) put(ctx context.Context, data []byte) (Extent, error) {
	return retry(ctx, v.failing, "store a value", func() (Extent, error) { return v.store.Put(ctx, v.id, data) })
}

// save saves the value of an entry, which is recorded only after that.
func (r *executor) save(added *entry, step string, at Extent, keep func(digest string)) {
	added.saving = true
	r.recorder.saving++
	r.begin(step, func(ctx context.Context) func() {
		digest, err := retry(ctx, &r.e.failing, "save a value", func() (string, error) { return r.e.opts.Values.Save(ctx, r.id, at) })
		if ctx.Err() != nil {
			return nil
		}
		return func() {
			if err != nil {
				r.failUnsaved(step, err)
				return
			}
			added.saving = false
			r.recorder.saving--
			keep(digest)
			r.values.saved(step, digest)
		}
	})
}

// failUnsaved fails a step whose value can't be saved. Events that followed from it are discarded.
func (r *executor) failUnsaved(step string, cause error) {
	if err := r.reload(); err != nil || r.result != nil {
		r.fenced = errors.Is(err, errFenced)
		r.stop()
		return
	}
	// By the log, its call is pending again.
	for i := range r.recorder.pendingActions {
		r.recorder.pendingActions[i].actions = slices.DeleteFunc(r.recorder.pendingActions[i].actions, func(a core.Action) bool {
			return stepOf(a) == step
		})
	}
	r.failStep(step, &dsl.Error{Type: dsl.ErrorRuntime, Status: 507, Title: "a value could not be saved", Detail: truncate(cause.Error())})
}

// stepOf returns the path of the step that an action starts, "" for other actions.
func stepOf(a core.Action) string {
	switch a := a.(type) {
	case core.Call:
		return a.Path
	case core.ServiceCall:
		return a.Path
	case core.RunWorkflow:
		return a.Path
	}
	return ""
}

// saveOutput saves an output that is too large for the log.
func (r *executor) saveOutput(last *entry) {
	const step = ":output"
	f := last.event.Finished
	output := f.Output
	last.saving = true
	r.recorder.saving++
	r.begin(step, func(ctx context.Context) func() {
		at, err := r.values.put(ctx, output)
		var digest string
		if err == nil {
			digest, err = retry(ctx, &r.e.failing, "save a value", func() (string, error) { return r.e.opts.Values.Save(ctx, r.id, at) })
		}
		if ctx.Err() != nil {
			return nil
		}
		return func() {
			last.saving = false
			r.recorder.saving--
			f.Output = nil
			if err != nil {
				f.Status, f.Error = core.Faulted, &dsl.Error{
					Type: dsl.ErrorRuntime, Status: 507, Title: "the output could not be saved", Detail: truncate(err.Error()),
				}
			} else {
				f.Value = &core.Value{Size: at.Size, Digest: digest, Type: "application/json"}
			}
			last.actions = []core.Action{core.Finish{Finished: *f}}
			last.at = time.Now()
		}
	})
}

// truncate bounds the text of an error.
func truncate(text string) string {
	const most = 4 << 10
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
