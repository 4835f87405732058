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

// executor drives one execution on this node. Its goroutine, loop, owns every field without another
// comment.
type executor struct {
	e        *Engine
	id       ID
	workflow *dsl.Workflow

	ctx  context.Context //nolint:containedctx // It is the run's life, which its end ends.
	stop context.CancelFunc
	// span is the span of the start request, tracing that of the execution.
	span    trace.SpanContext
	tracing trace.Span

	x        *core.Execution
	clock    eventClock
	version  int
	depth    int // the number of executions that run this one as a task of a task
	admitted int // the depth by which the engine counts it: 0 after a takeover
	recorder recorder
	active   activities
	values   *values
	held     int64 // the part of the engine's budget for what the tasks hold
	slot     runSlot
	fenced   bool // another node has appended to the log
	// resumed says that the execution was taken over and runs.
	resumed bool

	// done is closed when the execution has left this node.
	done chan struct{}
	once sync.Once
	// result is set before done is closed if the execution has ended.
	result *core.Finished

	inbox inbox
}

func (e *Engine) newRun(id ID, w *dsl.Workflow) *executor {
	r := &executor{
		e: e, id: id, workflow: w, x: core.New(string(id), w),
		active: activities{}, values: newValues(e.opts.Values, id, &e.failing),
		recorder: recorder{writer: logWriter{log: e.opts.Log, key: e.key(id)}, appends: e.metrics.appends},
		slot:     runSlot{slots: e.slots, expedited: make(chan struct{})},
		done:     make(chan struct{}), inbox: inbox{wake: make(chan struct{}, 1)},
	}
	r.ctx, r.stop = context.WithCancel(e.ctx)
	return r
}

// inbox is the queue of functions that a goroutine is to call.
type inbox struct {
	mu    sync.Mutex
	queue []func()
	wake  chan struct{}
}

// post queues f for the goroutine of the inbox.
func (b *inbox) post(f func()) {
	b.mu.Lock()
	b.queue = append(b.queue, f)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) drain() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := b.queue
	b.queue = nil
	return batch
}

// loop drives the execution to its end, or until the engine closes or another node owns the
// execution.
func (r *executor) loop() {
	defer r.finish()
	r.trace()
	if !r.acquireSlot() {
		return
	}
	r.applyQueued()
	r.runPendingActions()
	for r.flush() && r.suspendIfIdle() {
		select {
		case <-r.ctx.Done():
			return
		case <-r.inbox.wake:
		}
		if !r.acquireSlot() {
			return
		}
		for _, f := range r.inbox.drain() {
			f()
		}
	}
}

// trace begins the execution's span.
func (r *executor) trace() {
	ctx := trace.ContextWithRemoteSpanContext(r.ctx, r.span)
	r.ctx, r.tracing = r.e.opts.Tracer.Start(ctx, "workflow "+r.workflow.Name, trace.WithAttributes(
		attribute.String("outboard.execution", string(r.id)),
		attribute.String("outboard.workflow", r.workflow.Name),
		attribute.Int("outboard.version", r.version),
	))
}

// applyQueued ends an execution that was cancelled, or whose deadline passed, while it waited for a
// slot. Then none of its actions is started.
func (r *executor) applyQueued() {
	if _, end := r.x.Started(); !end.IsZero() && !r.clock.now().Before(end) {
		r.apply(core.Event{Fired: &core.Fired{Timer: core.DeadlineTimer}})
	}
	for _, f := range r.inbox.drain() {
		f()
	}
	if r.x.Status().Over() {
		r.recorder.pendingActions = nil
	}
}

// acquireSlot waits for one of the slots of running executions until the deadline.
func (r *executor) acquireSlot() bool {
	_, deadline := r.x.Started()
	if deadline.IsZero() {
		return r.slot.acquire(r.ctx, nil)
	}
	timer := time.NewTimer(deadline.Sub(r.clock.now()))
	defer timer.Stop()
	return r.slot.acquire(r.ctx, timer.C)
}

// suspendIfIdle releases the slot of an execution that only waits. It reports whether the execution
// continues.
func (r *executor) suspendIfIdle() bool {
	if r.result != nil {
		return false
	}
	if len(r.recorder.entries) == 0 && r.x.Status() == core.Waiting {
		r.slot.release()
	}
	return true
}

// detach stops driving the execution on this node. Unless it has ended, it continues elsewhere.
func (r *executor) detach() {
	r.once.Do(func() {
		r.stop()
		r.active.cancelBelow("", context.Canceled)
		r.slot.release()
		r.e.opts.Held.Release(r.held)
		r.held = 0
		r.e.forget(r)
		r.e.opts.Values.Release(r.id)
		close(r.done)
	})
}

// finish ends the run and, if the execution has ended, the claim on it.
func (r *executor) finish() {
	if f := r.result; f != nil {
		r.e.metrics.finished.WithLabelValues(string(f.Status)).Inc()
		if f.Error != nil {
			r.tracing.SetStatus(codes.Error, f.Error.Error())
		}
	}
	r.tracing.End()
	r.detach()
	switch {
	case r.result != nil:
		_, err := retry(r.e.ctx, &r.e.failing, "release the claim on an execution", func() (struct{}, error) { return struct{}{}, r.e.opts.Claims.Release(r.e.ctx, r.id) })
		if err != nil && r.e.ctx.Err() == nil {
			r.e.log.Warn("release the claim on an execution", "execution", r.id, "error", err)
		}
	case !r.fenced:
		// This node still owns the execution, unless the engine closes.
		r.e.spawn(func() { r.e.takeover.takeOver(r.id) })
	}
}

// activities are the running timers, calls and subscriptions, by path.
type activities map[string][]*activity

// activity is a running timer, call or subscription. The cause of its cancellation says what its end
// has to leave behind.
type activity struct{ cancel func(cause error) }

// cancelBelow cancels the activities at a path and below it.
func (active activities) cancelBelow(path string, cause error) {
	for p, activities := range active {
		if !core.Below(p, path) {
			continue
		}
		for _, a := range activities {
			a.cancel(cause)
		}
		delete(active, p)
	}
}

// register adds an activity at a path.
func (active activities) register(path string, cancel func(cause error)) *activity {
	a := &activity{cancel}
	active[path] = append(active[path], a)
	return a
}

// unregister cancels and removes an activity.
func (active activities) unregister(path string, a *activity) {
	a.cancel(context.Canceled)
	left := slices.DeleteFunc(active[path], func(b *activity) bool { return a == b })
	if active[path] = left; len(left) == 0 {
		delete(active, path)
	}
}

// apply applies an event, unless it is obsolete, and defers the actions that follow from it until
// it is recorded.
func (r *executor) apply(event core.Event) *entry {
	if !r.x.Wants(event) {
		return nil
	}
	event.At, event.By = r.clock.now(), r.e.writer
	actions, err := r.x.Apply(event)
	r.clock.set(r.x.Now())
	if err != nil {
		// Wants has ruled this out.
		r.e.log.Error("apply an event", "execution", r.id, "error", err)
		return nil
	}
	added := &entry{event: event, actions: actions, at: time.Now()}
	r.recorder.entries = append(r.recorder.entries, added)
	if err := r.reserveHeld(); err != nil {
		added.actions = nil
		r.apply(core.Event{Cancelled: &core.Cancelled{Reason: truncate(err.Error())}})
		return added
	}
	if n := len(actions); n > 0 {
		if f, ok := actions[n-1].(core.Finish); ok {
			added.actions = actions[:n-1]
			r.conclude(f.Finished)
		}
	}
	return added
}

// reserveHeld adjusts the reserved bytes to what the tasks hold. What is held less is always released.
func (r *executor) reserveHeld() error {
	more := int64(r.x.Held()) - r.held
	if more > 0 {
		if err := r.e.opts.Held.TryReserve(more); err != nil {
			return err
		}
	} else {
		r.e.opts.Held.Release(-more)
	}
	r.held += more
	return nil
}

// conclude adds the last record.
func (r *executor) conclude(f core.Finished) {
	last := &entry{event: core.Event{At: now(), By: r.e.writer, Finished: &f}, actions: []core.Action{core.Finish{Finished: f}}, at: time.Now()}
	r.recorder.entries = append(r.recorder.entries, last)
	if len(f.Output) > MaxInline {
		r.saveOutput(last)
	}
}
