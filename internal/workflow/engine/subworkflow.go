package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/itchyny/gojq"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// maxDepth bounds the nesting of executions that run each other as tasks.
const maxDepth = 16

// runWorkflow starts an execution of another workflow and waits for its end. The execution's name
// is derived from the step, so a node that takes this execution over waits for the same one.
func (d stepDriver) runWorkflow(a core.RunWorkflow, at time.Time) {
	r := d.r
	_, deadline := r.x.Started()
	depth := r.depth + 1
	d.start(a.Path, "run:"+a.Run.Name, at, func(ctx context.Context) (Outcome, error) {
		if depth > maxDepth {
			return Outcome{}, &dsl.Error{
				Type: dsl.ErrorRuntime, Status: 508, Title: "too many workflows run each other",
				Detail: fmt.Sprintf("%d executions are above this task, the most", maxDepth),
			}
		}
		name, err := r.e.opts.Workflows.Find(ctx, r.id.App(), r.version, a.Run)
		if err != nil {
			return Outcome{}, err
		}
		req := StartRequest{
			App: r.id.App(), Workflow: name, Name: childName(r.id, a.Path),
			version: r.version, parent: r.id, depth: depth,
		}
		if a.Run.Await {
			req.Deadline = deadline
		}
		if err := r.values.childInput(ctx, a.Input, &req); err != nil {
			return Outcome{}, err
		}
		id, err := d.startChild(ctx, req)
		if err != nil || !a.Run.Await {
			return Outcome{}, err
		}
		return d.awaitChild(ctx, id)
	})
}

// childName returns the name of the execution that a step runs.
func childName(parent ID, path string) string {
	sum := sha256.Sum256([]byte(core.IdempotencyKey(string(parent), path)))
	return "sub-" + hex.EncodeToString(sum[:16])
}

// cancelChild cancels an execution that a step ran, if there is one.
func (e *Engine) cancelChild(parent, id ID) {
	err := e.Cancel(e.ctx, id, "the workflow that ran it went on or ended")
	if err != nil && !errors.Is(err, ErrNotFound) && e.ctx.Err() == nil {
		e.log.Warn("cancel an execution that a workflow ran", "execution", id, "parent", parent, "error", err)
	}
}

// cancelChildren cancels the executions that the execution's stopped tasks ran. It replaces the
// activities of those tasks where they have ended with their node, or run on another node.
func (e *Engine) cancelChildren(r *executor) {
	for _, t := range r.x.History() {
		if t.Task.Run == nil || !t.Task.Run.Await {
			continue
		}
		timedOut := t.Status == core.Faulted && t.Error != nil && t.Error.Type == dsl.ErrorTimeout
		if t.Status == core.Abandoned || timedOut {
			e.spawn(func() { e.cancelChild(r.id, ID(r.id.App()+"/"+childName(r.id, t.Path))) })
		}
	}
}

// childInput sets the input of an execution that a step runs. A large value is copied.
func (v *values) childInput(ctx context.Context, input any, to *StartRequest) error {
	if ref, ok := v.reference(input); ok {
		at, held, err := v.locateValue(ctx, ref)
		if err != nil {
			return err
		}
		to.Type = held.value.Type
		if to.Type == "" {
			to.Type = "application/octet-stream"
		}
		to.Input, err = v.store.Bytes(ctx, v.id, at)
		return err
	}
	var err error
	to.Type = "application/json"
	to.Input, err = gojq.Marshal(input)
	return err
}

// startChild starts an execution, and tries again while there are too many or the state is
// unreachable.
func (d stepDriver) startChild(ctx context.Context, req StartRequest) (ID, error) {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		id, err := d.r.e.Start(ctx, req)
		if kind := outboard.KindOf(err); kind != outboard.Busy && kind != outboard.Unreachable || !sleep(ctx, pause) {
			return id, err
		}
	}
}

// awaitChild returns the output of an execution that a step runs. If the step is stopped, the
// execution is cancelled.
func (d stepDriver) awaitChild(ctx context.Context, id ID) (Outcome, error) {
	r := d.r
	result, err := r.e.Wait(ctx, id)
	if context.Cause(ctx) == errStopped { //nolint:errorlint // It is the cause itself.
		r.e.spawn(func() { r.e.cancelChild(r.id, id) })
	}
	switch {
	case err != nil:
		return Outcome{}, err
	case result.Error != nil:
		inner := *result.Error
		inner.Instance = "" // it points into the other workflow
		return Outcome{}, &inner
	case result.Status != core.Completed:
		return Outcome{}, &dsl.Error{Type: dsl.ErrorRuntime, Status: 500, Title: "the workflow was " + string(result.Status), Detail: string(id)}
	case result.Value == nil:
		return Outcome{Body: result.Output}, nil
	}
	body, err := r.e.opts.Values.Fetch(ctx, id, *result.Value)
	return Outcome{Body: body, Type: result.Value.Type}, err
}
