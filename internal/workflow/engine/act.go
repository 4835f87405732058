package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// release does what follows from what is recorded.
func (r *run) release() {
	for len(r.due) > 0 {
		next := r.due[0]
		r.due = r.due[1:]
		for _, a := range next.actions {
			r.do(a, next.at)
		}
	}
}

// startEarly begins calls without effects while values before them are being
// saved. Where something is stopped meanwhile they have to keep to their order.
func (r *run) startEarly() {
	if r.saving == 0 {
		return
	}
	for _, entry := range r.entries {
		kept := entry.actions[:0:0]
		for i, a := range entry.actions {
			if _, ok := a.(core.Stop); ok {
				entry.actions = append(kept, entry.actions[i:]...)
				return
			}
			if c, ok := a.(core.Call); ok && r.e.opts.Functions.Pure(r.id.App(), r.version, c.Function) {
				r.e.metrics.early.Inc()
				r.do(a, entry.at)
				continue
			}
			kept = append(kept, a)
		}
		entry.actions = kept
	}
}

// do begins an action. At is when what it follows from happened.
func (r *run) do(a core.Action, at time.Time) {
	switch a := a.(type) {
	case core.Call:
		r.call(a, at)
	case core.Timer:
		r.timer(a)
	case core.Emit:
		r.emit(a)
	case core.Listen:
		r.listen(a)
	case core.Stop:
		r.halt(a.Path)
	case core.Finish:
		f := a.Finished
		r.result = &f
	}
}

// begin runs f in a goroutine of its own until what is under way at the path is
// stopped. What f returns is called by the run's goroutine, unless it was stopped.
func (r *run) begin(path string, f func(ctx context.Context) func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	a := r.underWay(path, cancel)
	r.e.work.Go(func() {
		then := f(ctx)
		r.send(func() {
			if ctx.Err() != nil {
				return
			}
			r.over(path, a)
			if then != nil {
				then()
			}
		})
	})
}

func (r *run) timer(t core.Timer) {
	ctx, cancel := context.WithCancel(r.ctx)
	var a *activity
	timer := time.AfterFunc(time.Until(t.At), func() {
		r.send(func() {
			if ctx.Err() == nil {
				r.over(t.Path, a)
				r.happen(core.Event{Fired: &core.Fired{Path: t.Path, Timer: t.Kind}})
			}
		})
	})
	a = r.underWay(t.Path, func() { cancel(); timer.Stop() })
}

// emit publishes an event, again and again until it succeeds.
func (r *run) emit(a core.Emit) {
	r.begin(a.Path, func(ctx context.Context) func() {
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			err := r.e.opts.Events.Publish(ctx, r.id.App(), a.Event)
			if err == nil {
				return func() { r.happen(core.Event{Emitted: &core.Emitted{Path: a.Path}}) }
			}
			r.e.log.Warn("publish an event of a workflow", "execution", r.id, "step", a.Path, "error", err)
			if !sleep(ctx, pause) {
				return nil
			}
		}
	})
}

// maxEvent bounds an event that a workflow takes.
const maxEvent = 256 << 10

// listen subscribes until it is stopped.
func (r *run) listen(a core.Listen) {
	r.begin(a.Path, func(ctx context.Context) func() {
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			cancel, err := r.e.opts.Events.Subscribe(ctx, r.id.App(), a.Since, func(event core.CloudEvent) { r.hear(ctx, a, event) })
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

// hear takes an event that may be for a task. It goes the way through the log's
// text, so that it is now what it will be after a crash.
func (r *run) hear(ctx context.Context, a core.Listen, event core.CloudEvent) {
	met := len(a.Filters) == 0
	for _, f := range a.Filters {
		met = met || f.Match(event)
	}
	if !met {
		return
	}
	text, err := json.Marshal(event)
	var same core.CloudEvent
	if err == nil {
		err = json.Unmarshal(text, &same)
	}
	if err != nil || len(text) > maxEvent {
		r.e.log.Warn("an event is no JSON or too large for a workflow", "execution", r.id, "step", a.Path, "bytes", len(text), "error", err)
		return
	}
	r.send(func() {
		if ctx.Err() == nil {
			r.happen(core.Event{Received: &core.Received{Path: a.Path, Event: same}})
		}
	})
}

// fail ends a call with an error, after what may have been applied of it was
// thrown away.
func (r *run) fail(path string, err *dsl.Error) {
	r.happen(core.Event{Step: &core.Step{Path: path, Error: err}})
}
