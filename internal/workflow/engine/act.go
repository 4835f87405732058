package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// runPendingActions performs the actions of recorded events.
func (r *executor) runPendingActions() {
	for len(r.recorder.pendingActions) > 0 {
		next := r.recorder.pendingActions[0]
		r.recorder.pendingActions = r.recorder.pendingActions[1:]
		for _, a := range next.actions {
			r.perform(a, next.at)
		}
	}
}

// startEarly starts calls without effects while values that precede them are being saved. It ends
// at a Stop: actions behind it keep their order.
func (r *executor) startEarly() {
	if r.recorder.saving == 0 {
		return
	}
	for _, entry := range r.recorder.entries {
		kept := entry.actions[:0:0]
		for i, a := range entry.actions {
			if _, ok := a.(core.Stop); ok {
				entry.actions = append(kept, entry.actions[i:]...)
				return
			}
			if c, ok := a.(core.Call); ok && r.e.opts.Functions.Pure(r.id.App(), r.version, c.Function) {
				r.e.metrics.early.Inc()
				r.perform(a, entry.at)
				continue
			}
			kept = append(kept, a)
		}
		entry.actions = kept
	}
}

// perform starts an action. at is the time of the event that caused it.
func (r *executor) perform(a core.Action, at time.Time) {
	switch a := a.(type) {
	case core.Call:
		r.call(a, at)
	case core.ServiceCall:
		stepDriver{r}.callService(a, at)
	case core.RunWorkflow:
		stepDriver{r}.runWorkflow(a, at)
	case core.Timer:
		r.timer(a)
	case core.Emit:
		r.emit(a)
	case core.Listen:
		r.listen(a)
	case core.Stop:
		r.active.cancelBelow(a.Path, errStopped)
	case core.Finish:
		f := a.Finished
		r.result = &f
	}
}

// begin runs f in a goroutine of its own until the activities at the path are cancelled. Unless
// they were, the execution's goroutine calls the function that f returns.
func (r *executor) begin(path string, f func(ctx context.Context) func()) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	a := r.active.register(path, cancel)
	r.e.work.Go(func() {
		then := f(ctx)
		r.inbox.post(func() {
			if ctx.Err() != nil {
				return
			}
			r.active.unregister(path, a)
			if then != nil {
				then()
			}
		})
	})
}

// The causes of an activity's cancellation while the engine continues.
var (
	// errStopped says that the workflow stopped the task, or ended.
	errStopped = errors.New("the step was stopped")
	// errRestarted says that the execution continues from its log, and starts the activity again.
	errRestarted = errors.New("the execution continues from its log")
)

func (r *executor) timer(t core.Timer) {
	ctx, cancel := context.WithCancel(r.ctx)
	var a *activity
	timer := time.AfterFunc(t.At.Sub(r.clock.now()), func() {
		r.inbox.post(func() {
			if ctx.Err() == nil {
				r.active.unregister(t.Path, a)
				r.apply(core.Event{Fired: &core.Fired{Path: t.Path, Timer: t.Kind, Attempt: t.Attempt}})
			}
		})
	})
	a = r.active.register(t.Path, func(error) { cancel(); timer.Stop() })
}

// emit publishes an event, and retries until it succeeds.
func (r *executor) emit(a core.Emit) {
	r.begin(a.Path, func(ctx context.Context) func() {
		for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
			err := r.e.opts.Events.Publish(ctx, r.id.App(), a.Event)
			if err == nil {
				return func() { r.apply(core.Event{Emitted: &core.Emitted{Path: a.Path}}) }
			}
			r.e.log.Warn("publish an event of a workflow", "execution", r.id, "step", a.Path, "error", err)
			if !sleep(ctx, pause) {
				return nil
			}
		}
	})
}

// listen subscribes until it is stopped.
func (r *executor) listen(a core.Listen) {
	r.begin(a.Path, func(ctx context.Context) func() {
		for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
			cancel, err := r.e.opts.Events.Subscribe(ctx, r.id.App(), a.Since, func(event core.CloudEvent) { r.receive(ctx, a, event) })
			if err == nil {
				<-ctx.Done()
				cancel()
				return nil
			}
			r.e.log.Warn("subscribe to events for a workflow", "execution", r.id, "step", a.Path, "error", err)
			if !sleep(ctx, pause) {
				return nil
			}
		}
	})
}

// receive filters an event for a task that listens. The event is encoded and decoded as in the log,
// so that it is the same before and after a replay.
func (r *executor) receive(ctx context.Context, a core.Listen, event core.CloudEvent) {
	met := len(a.Filters) == 0
	budget := &dsl.Budget{}
	for _, f := range a.Filters {
		met = met || f.Match(event, budget)
	}
	if !met {
		return
	}
	text, err := json.Marshal(event)
	var same core.CloudEvent
	if err == nil {
		err = json.Unmarshal(text, &same)
	}
	if err != nil || len(text) > core.MaxEvent {
		r.e.log.Warn("an event is no JSON or too large for a workflow", "execution", r.id, "step", a.Path, "bytes", len(text), "error", err)
		return
	}
	r.inbox.post(func() {
		if ctx.Err() == nil {
			r.apply(core.Event{Received: &core.Received{Path: a.Path, Event: same}})
		}
	})
}

// failStep ends a call with an error, after the events that followed from its result were
// discarded.
func (r *executor) failStep(path string, err *dsl.Error) {
	r.apply(core.Event{Step: &core.Step{Path: path, Error: err}})
}
