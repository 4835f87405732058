package core

import (
	"hash/fnv"
	"math"
	"time"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// try runs its tasks, retries them when they fail, and then runs the tasks of catch.
type try struct {
	node    *node
	attempt int // 1 for the first
	began   time.Time
	tasks   *sequence
	// nextAttempt is when the next attempt begins, zero while one runs.
	nextAttempt time.Time
	catching    bool
}

func (t *try) begin(any) {
	t.attempt = 1
	t.run()
}

// run begins an attempt.
func (t *try) run() {
	n := t.node
	t.began, t.nextAttempt = n.x.now, time.Time{}
	if limit := t.attemptTimeout(); limit > 0 {
		n.x.emitAction(t.attemptTimer(limit))
	}
	n.attempt = t.attempt
	t.tasks = &sequence{
		node: n, tasks: n.task.Try.Do, prefix: attempt(n.path, t.attempt), locals: n.locals, finished: t.finished,
	}
	t.tasks.begin(n.input)
}

func (t *try) attemptTimeout() time.Duration {
	if r := t.node.task.Try.Retry; r != nil && !t.catching && t.nextAttempt.IsZero() {
		return r.AttemptTimeout
	}
	return 0
}

// attemptTimer returns the timer of the attempt that runs.
func (t *try) attemptTimer(limit time.Duration) Timer {
	return Timer{Path: t.node.path, Kind: AttemptTimer, At: t.began.Add(limit), Attempt: t.attempt}
}

// stopAttemptTimer stops the timer of an attempt that is over. Since Stop covers all timers
// of the path, the task's own timeout is set again.
func (t *try) stopAttemptTimer() {
	if limit := t.attemptTimeout(); limit > 0 && t.began.Add(limit).After(t.node.x.now) {
		t.node.x.emitAction(Stop{Path: t.node.path})
		if d := t.node.task.Timeout; d > 0 {
			t.node.x.emitAction(Timer{Path: t.node.path, Kind: TimeoutTimer, At: t.node.began.Add(d)})
		}
	}
}

func (t *try) finished(output any) {
	t.stopAttemptTimer()
	t.node.complete(output, t.node.task.Then)
}

func (t *try) ended(child *node, output any, then string) { t.tasks.ended(child, output, then) }

func (t *try) failed(_ *node, err *dsl.Error) {
	if t.catching {
		t.node.fail(err)
		return
	}
	t.stopAttemptTimer()
	t.caught(err)
}

// timeoutAttempt ends an attempt that exceeds its timeout.
func (t *try) timeoutAttempt() {
	t.node.stopChildren()
	err := timeoutError("the attempt", t.attemptTimeout())
	err.Instance = t.node.task.Reference
	t.caught(err)
}

// caught retries, runs the tasks of catch, or raises the error.
func (t *try) caught(err *dsl.Error) {
	n, spec := t.node, t.node.task.Try
	locals := n.locals.With(spec.As, errorData(err))
	yes, evalErr := t.catches(err, locals)
	if evalErr != nil {
		n.fail(expressionError(evalErr))
		return
	}
	if !yes {
		n.fail(err)
		return
	}
	again, evalErr := t.retries(err, locals)
	switch {
	case evalErr != nil:
		n.fail(expressionError(evalErr))
	case again:
		t.scheduleRetry()
	case spec.Catch != nil:
		t.catch(locals)
	case spec.Retry != nil:
		n.fail(err)
	default:
		n.complete(n.input, n.task.Then)
	}
}

func (t *try) catch(locals *dsl.Locals) {
	n := t.node
	t.catching = true
	t.tasks = &sequence{
		node: n, tasks: n.task.Try.Catch, prefix: catching(n.path), locals: locals,
		finished: func(output any) { n.complete(output, n.task.Then) },
	}
	t.tasks.begin(n.input)
}

func (t *try) catches(err *dsl.Error, locals *dsl.Locals) (bool, error) {
	spec := t.node.task.Try
	fields, _ := errorData(err).(map[string]any)
	for key, want := range spec.Errors {
		if fields[key] != want {
			return false, nil
		}
	}
	return t.when(spec.When, spec.ExceptWhen, locals)
}

func (t *try) when(when, except *dsl.Expr, locals *dsl.Locals) (bool, error) {
	s := t.node.x.scope(t.node, t.node.input)
	s.Locals = locals
	if yes, err := when.True(s); err != nil || !yes {
		return false, err
	}
	if except == nil {
		return true, nil
	}
	not, err := except.True(s)
	return !not, err
}

// retries reports whether the policy allows another attempt.
func (t *try) retries(err *dsl.Error, locals *dsl.Locals) (bool, error) {
	r := t.node.task.Try.Retry
	switch {
	case r == nil:
		return false, nil
	case r.Attempts > 0 && t.attempt > r.Attempts:
		return false, nil
	case r.Limit > 0 && t.node.x.now.Add(t.delay()).After(t.node.began.Add(r.Limit)):
		return false, nil
	}
	return t.when(r.When, r.ExceptWhen, locals.With("error", errorData(err)))
}

// delay returns the back-off before the next attempt, jitter included.
func (t *try) delay() time.Duration {
	r := t.node.task.Try.Retry
	const longest = float64(10 * 365 * 24 * time.Hour)
	factor := 1.0
	switch r.Backoff {
	case dsl.Linear:
		factor = float64(t.attempt)
	case dsl.Exponential:
		factor = min(math.Pow(2, float64(t.attempt-1)), longest) // no infinity: the delay may be 0
	case dsl.Constant:
	}
	return time.Duration(min(float64(r.Delay)*factor, longest)) + t.jitter(r)
}

// jitter derives the jitter from a hash of the attempt's path, so that a replay gets the same one.
func (t *try) jitter(r *dsl.Retry) time.Duration {
	span := r.JitterTo - r.JitterFrom
	if span <= 0 {
		return r.JitterFrom
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.node.x.id + "\n" + attempt(t.node.path, t.attempt)))
	// The low bits of FNV depend on few of the last bytes.
	part := float64(h.Sum64()>>11) / (1 << 53)
	return r.JitterFrom + time.Duration(part*float64(span))
}

// scheduleRetry begins the next attempt after its delay.
func (t *try) scheduleRetry() {
	n := t.node
	d := t.delay()
	if d <= 0 {
		t.attempt++
		n.x.enqueue(n, t.run)
		return
	}
	t.nextAttempt = n.x.now.Add(d)
	n.x.emitAction(Timer{Path: n.path, Kind: RetryTimer, At: t.nextAttempt})
}

func (t *try) retry() {
	t.attempt++
	t.run()
}

// wantsTimer reports whether the try waits for a timer. That of an earlier attempt may expire before
// its Stop is performed; logs of earlier versions do not say which attempt one is for.
func (t *try) wantsTimer(f *Fired) bool {
	switch f.Timer {
	case RetryTimer:
		return !t.nextAttempt.IsZero()
	case AttemptTimer:
		return t.attemptTimeout() > 0 && (f.Attempt == 0 || f.Attempt == t.attempt)
	default:
		return false
	}
}

func (t *try) pending(actions []Action) []Action {
	n := t.node
	if !t.nextAttempt.IsZero() {
		return append(actions, Timer{Path: n.path, Kind: RetryTimer, At: t.nextAttempt})
	}
	if limit := t.attemptTimeout(); limit > 0 {
		actions = append(actions, t.attemptTimer(limit))
	}
	return actions
}
