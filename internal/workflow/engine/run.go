package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// run is an execution on this node. Its goroutine, live, owns everything but
// what says otherwise.
type run struct {
	e        *Engine
	id       ID
	key      string
	workflow *dsl.Workflow

	ctx  context.Context //nolint:containedctx // It is the run's life, which its end ends.
	stop context.CancelFunc
	// span is what asked for the execution, tracing its own span.
	span    trace.SpanContext
	tracing trace.Span

	x       *core.Execution
	version int
	seq     uint64   // of the last record
	entries []*entry // what was applied and is not recorded
	due     []due    // what follows from what is recorded
	saving  int      // entries among them whose value is being saved
	active  map[string][]*activity
	values  *values
	slot    bool // whether it is among those that run
	lost    bool // whether another node has it
	// inherited says that it was taken over and lives.
	inherited bool

	// done is closed when it runs here no longer.
	done chan struct{}
	once sync.Once
	// hurried is closed when the execution must not wait for a place.
	hurried chan struct{}
	hurry   sync.Once
	// result is set before done is closed if the execution has ended.
	result *core.Finished

	mu    sync.Mutex
	inbox []func()
	wake  chan struct{}
}

// entry is an event that was applied, and what is held until it is recorded.
type entry struct {
	event   core.Event
	saving  bool
	actions []core.Action
	// at is when it happened, for the metrics.
	at time.Time
}

// due is what has to be done, and since when.
type due struct {
	actions []core.Action
	at      time.Time
}

func (e *Engine) newRun(id ID, w *dsl.Workflow) *run {
	r := &run{
		e: e, id: id, key: e.key(id), workflow: w, x: core.New(string(id), w),
		active: map[string][]*activity{}, values: newValues(),
		done: make(chan struct{}), hurried: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	r.ctx, r.stop = context.WithCancel(e.ctx)
	return r
}

// send has f called by the run's goroutine, unless the run ends before.
func (r *run) send(f func()) {
	r.mu.Lock()
	r.inbox = append(r.inbox, f)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *run) take() []func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.inbox
	r.inbox = nil
	return batch
}

// live drives the execution to its end, or until the engine closes or another
// node has it.
func (r *run) live() {
	defer r.finish()
	r.trace()
	if !r.enter() {
		return
	}
	r.settleQueued()
	r.release()
	for r.flush() && r.rest() {
		select {
		case <-r.ctx.Done():
			return
		case <-r.wake:
		}
		if !r.enter() {
			return
		}
		for _, f := range r.take() {
			f()
		}
	}
}

// trace begins the execution's span.
func (r *run) trace() {
	ctx := trace.ContextWithRemoteSpanContext(r.ctx, r.span)
	r.ctx, r.tracing = r.e.opts.Tracer.Start(ctx, "workflow "+r.workflow.Name, trace.WithAttributes(
		attribute.String("outboard.execution", string(r.id)),
		attribute.String("outboard.workflow", r.workflow.Name),
		attribute.Int("outboard.version", r.version),
	))
}

// settleQueued ends an execution that was cancelled, or came to its deadline, while
// it waited for a place. Then nothing of it begins.
func (r *run) settleQueued() {
	if _, end := r.x.Started(); !end.IsZero() && !time.Now().Before(end) {
		r.happen(core.Event{Fired: &core.Fired{Timer: core.DeadlineTimer}})
	}
	for _, f := range r.take() {
		f()
	}
	if r.x.Status().Over() {
		r.due = nil
	}
}

// enter waits for a place among the executions that run, no longer than to its
// deadline.
func (r *run) enter() bool {
	if r.slot {
		return true
	}
	var expired <-chan time.Time
	if _, end := r.x.Started(); !end.IsZero() {
		timer := time.NewTimer(time.Until(end))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case r.e.slots <- struct{}{}:
		r.slot = true
		return true
	case <-r.hurried:
		return true
	case <-expired:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// rest gives the place back while there is nothing to do but to wait. It reports
// whether the execution goes on.
func (r *run) rest() bool {
	if r.result != nil {
		return false
	}
	if len(r.entries) == 0 && r.x.Status() == core.Waiting {
		r.leave()
	}
	return true
}

func (r *run) leave() {
	if r.slot {
		r.slot = false
		<-r.e.slots
	}
}

// abandon ends the run on this node. The execution goes on elsewhere, if it has
// not ended.
func (r *run) abandon() {
	r.once.Do(func() {
		r.stop()
		r.halt("")
		r.leave()
		r.e.drop(r)
		r.e.opts.Values.Release(r.id)
		close(r.done)
	})
}

// finish ends the run and, should the execution have ended, the claim on it.
func (r *run) finish() {
	if f := r.result; f != nil {
		r.e.metrics.finished.WithLabelValues(string(f.Status)).Inc()
		if f.Error != nil {
			r.tracing.SetStatus(codes.Error, f.Error.Error())
		}
	}
	r.tracing.End()
	r.abandon()
	switch {
	case r.result != nil:
		_, err := persist(r.e.ctx, func() (struct{}, error) { return struct{}{}, r.e.opts.Claims.Release(r.e.ctx, r.id) })
		if err != nil && r.e.ctx.Err() == nil {
			r.e.log.Warn("release the claim on an execution", "execution", r.id, "error", err)
		}
	case !r.lost:
		// It is still this node's, unless the engine closes.
		r.e.spawn(func() { r.e.adopt(r.id) })
	}
}

// activity is something under way.
type activity struct{ cancel func() }

// halt cancels what is under way at a path and below it.
func (r *run) halt(path string) {
	for p, activities := range r.active {
		if !core.Below(p, path) {
			continue
		}
		for _, a := range activities {
			a.cancel()
		}
		delete(r.active, p)
	}
}

// underWay remembers how to cancel what was begun at a path.
func (r *run) underWay(path string, cancel func()) *activity {
	a := &activity{cancel}
	r.active[path] = append(r.active[path], a)
	return a
}

// over ends what was under way at a path.
func (r *run) over(path string, a *activity) {
	a.cancel()
	left := slices.DeleteFunc(r.active[path], func(b *activity) bool { return a == b })
	if r.active[path] = left; len(left) == 0 {
		delete(r.active, path)
	}
}

// happen applies an event, if it still matters, and holds what follows from it
// until it is recorded.
func (r *run) happen(event core.Event) *entry {
	if !r.x.Wants(event) {
		return nil
	}
	event.At, event.By = now(), r.e.by
	actions, err := r.x.Apply(event)
	if err != nil {
		// Wants has ruled this out.
		r.e.log.Error("apply an event", "execution", r.id, "error", err)
		return nil
	}
	added := &entry{event: event, actions: actions, at: time.Now()}
	r.entries = append(r.entries, added)
	if n := len(actions); n > 0 {
		if f, ok := actions[n-1].(core.Finish); ok {
			added.actions = actions[:n-1]
			r.conclude(f.Finished)
		}
	}
	return added
}

// conclude adds the last record.
func (r *run) conclude(f core.Finished) {
	last := &entry{event: core.Event{At: now(), By: r.e.by, Finished: &f}, actions: []core.Action{core.Finish{Finished: f}}, at: time.Now()}
	r.entries = append(r.entries, last)
	if len(f.Output) > MaxInline {
		r.saveOutput(last)
	}
}
