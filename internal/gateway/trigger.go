package gateway

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

// invoke makes a call for a trigger without an HTTP client, and records it. pause waits before the
// call is repeated, see invokeUntilStarted. use processes the answer; its error becomes the call's.
func (g *Gateway) invoke(ctx context.Context, call *Call, s *appState, pause func(time.Duration) bool, use func(*Answer) error) (Answer, error) {
	begin := time.Now()
	ctx, span := g.trace(ctx, call, nil)
	answer, err := g.invokeUntilStarted(ctx, call, pause)
	if err == nil {
		answer.started(call)
		err = use(&answer)
	}
	g.record(outcome{call: call, answer: &answer, err: err, begin: begin, took: time.Since(begin), span: span, trace: traceOf(ctx), ring: s.ring})
	return answer, err
}

// The pauses before the start of a workflow is repeated.
const (
	minStartPause = 100 * time.Millisecond
	maxStartPause = 5 * time.Second
)

// invokeUntilStarted makes a call. The start of a workflow is repeated for startLimit, unless pause
// returns false, if it fails for a reason that may pass: the pool's state does not answer, or too many
// executions run. All attempts together start one execution.
func (g *Gateway) invokeUntilStarted(ctx context.Context, call *Call, pause func(time.Duration) bool) (Answer, error) {
	end := time.Now().Add(startLimit)
	for wait := minStartPause; ; wait = min(2*wait, maxStartPause) {
		answer, err := g.opts.Invoker.Invoke(ctx, *call)
		if err == nil || call.Workflow == "" || call.Wait || time.Now().After(end) {
			return answer, err
		}
		if p := NewProblem(err); !p.retryable() || !pause(wait) {
			return answer, err
		}
		call.ID = answer.ID
	}
}

// never is the pause of calls that are not repeated, since a client learns of their failure.
func never(time.Duration) bool { return false }

// pausing returns a function that pauses, and returns false if life ends.
func pausing(life context.Context) func(time.Duration) bool {
	return func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-life.Done():
			return false
		}
	}
}

// metaOnly returns the metadata of a call that has one value.
func metaOnly(name, value string) func(string) (string, bool) {
	return func(asked string) (string, bool) {
		if asked == name {
			return value, true
		}
		return "", false
	}
}

// Run serves connections and fires triggers until ctx ends, and then drains.
func (g *Gateway) Run(ctx context.Context, ready func()) error {
	var all sync.WaitGroup
	stop := make(chan error, 1)
	all.Go(func() { stop <- g.server.run(ctx, g.opts.Grace) })
	all.Go(func() {
		<-ctx.Done()
		g.sockets.close()
	})
	stopTriggers := g.startTriggers(ctx)
	all.Go(func() {
		<-ctx.Done()
		stopTriggers()
	})
	ready()
	all.Wait()
	g.metrics.unregister(g.opts.Metrics)
	return <-stop
}

// startTriggers starts the triggers of the table, and has SetApps change them until stop.
func (g *Gateway) startTriggers(ctx context.Context) (stop func()) {
	t := &triggers{gateway: g, running: map[string]*running{}}
	g.setReconcile(func() { t.reconcile(ctx, g.table.Load()) })
	g.reconcileTriggers()
	return func() {
		g.setReconcile(func() {})
		t.stopAll()
	}
}

func (g *Gateway) setReconcile(f func()) {
	g.triggersMu.Lock()
	defer g.triggersMu.Unlock()
	g.reconcile = f
}

// reconcileTriggers makes the running triggers those of the table.
func (g *Gateway) reconcileTriggers() {
	g.triggersMu.Lock()
	defer g.triggersMu.Unlock()
	g.reconcile()
}

// triggers are the running subjects and schedules.
type triggers struct {
	gateway  *Gateway
	running  map[string]*running // by app
	draining sync.WaitGroup      // replaced triggers whose calls have not ended
}

// running is the running triggers of one version of an app.
type running struct {
	app   *App
	stop  context.CancelFunc
	ended sync.WaitGroup
	subs  []func()
}

// reconcile stops the triggers of removed versions and starts those of new ones. For a moment both
// versions are subscribed, as one queue group, so that no message is lost or delivered twice.
func (t *triggers) reconcile(ctx context.Context, table *Table) {
	var old []*running
	for name, r := range t.running {
		if a := table.find(name); a == nil || !sameTriggers(r.app, &a.app) {
			r.stop()
			old = append(old, r)
			delete(t.running, name)
		}
	}
	subscribed := false
	for name, a := range table.all {
		if t.running[name] == nil {
			t.running[name] = t.start(ctx, &a.app)
			subscribed = subscribed || len(t.running[name].subs) > 0
		}
	}
	if subscribed {
		t.confirm(ctx)
	}
	for _, r := range old {
		t.draining.Go(r.end)
	}
}

// confirmLimit bounds how long new subscriptions are waited for while the pool's state is away.
const confirmLimit = 5 * time.Second

// confirm waits until the new subscriptions get every message, so that an app is not said to be
// deployed before.
func (t *triggers) confirm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	if err := t.gateway.opts.Bus.Flush(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.gateway.log.Warn("the subscriptions of triggers are not confirmed", "error", err)
	}
}

func (t *triggers) stopAll() {
	for _, r := range t.running {
		t.draining.Go(r.end)
	}
	t.draining.Wait()
}

// end stops the triggers and waits for their calls.
func (r *running) end() {
	r.stop()
	for _, stop := range r.subs {
		stop()
	}
	r.ended.Wait()
}

func sameTriggers(a, b *App) bool {
	if len(a.Subjects) != len(b.Subjects) || len(a.Crons) != len(b.Crons) {
		return false
	}
	for i := range a.Subjects {
		if a.Subjects[i] != b.Subjects[i] {
			return false
		}
	}
	for i := range a.Crons {
		if !a.Crons[i].same(&b.Crons[i]) {
			return false
		}
	}
	return true
}

func (t *triggers) start(ctx context.Context, a *App) *running {
	life := ctx
	ctx, stop := context.WithCancel(ctx)
	r := &running{app: a, stop: stop}
	s := t.gateway.stateFor(a.Name)
	for i := range a.Subjects {
		f := &subjectTrigger{SubjectTrigger: &a.Subjects[i], await: awaiting(life, a), pause: pausing(life), gateway: t.gateway, state: s, ended: &r.ended, slots: make(chan struct{}, subjectCalls)}
		if stop := f.start(ctx); stop != nil {
			r.subs = append(r.subs, stop)
		}
	}
	for i := range a.Crons {
		c := &cronTrigger{CronTrigger: &a.Crons[i], await: awaiting(life, a), pause: pausing(life), gateway: t.gateway, state: s}
		r.ended.Go(func() { c.run(ctx, &r.ended) })
	}
	return r
}

// awaiting returns a function that waits until the app can be called, for a time or, if that is 0,
// for ever. It is bound to the life of all triggers: a message is not dropped if the app's triggers
// change meanwhile.
func awaiting(life context.Context, a *App) func(limit time.Duration) error {
	if a.Await == nil {
		return func(time.Duration) error { return nil }
	}
	return func(limit time.Duration) error {
		if limit == 0 {
			return a.Await(life)
		}
		ctx, cancel := context.WithTimeout(life, limit)
		defer cancel()
		return a.Await(ctx)
	}
}

// stateFor is stateOf for callers that do not hold the lock.
func (g *Gateway) stateFor(name string) *appState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stateOf(name)
}

// subjectCalls bounds the concurrent calls of one trigger. Further messages wait in the
// subscription.
const subjectCalls = 64

// subjectTrigger makes calls for the messages on one subject.
type subjectTrigger struct {
	*SubjectTrigger
	gateway *Gateway
	state   *appState
	await   func(limit time.Duration) error
	pause   func(time.Duration) bool
	ended   *sync.WaitGroup
	slots   chan struct{}
}

func (f *subjectTrigger) start(ctx context.Context) (stop func()) {
	queue := f.Queue
	if queue == "" {
		// The nodes share the messages of a trigger; an app's triggers do not share messages. The
		// prefix belongs to the system: another app's trigger would get some of the messages.
		queue = "outboard/" + f.gateway.opts.Tenant + "/" + f.state.name + "/" + f.target()
	}
	stop, err := f.gateway.opts.Bus.Subscribe(f.Subject, queue, func(m Message) { f.accept(ctx, m) })
	if err != nil {
		f.gateway.log.Warn("a subject is not subscribed to", "app", f.state.name, "subject", f.Subject, "error", err)
		return nil
	}
	return stop
}

// accept starts the call for a message when a slot is free.
func (f *subjectTrigger) accept(ctx context.Context, m Message) {
	f.slots <- struct{}{}
	f.ended.Go(func() {
		defer func() { <-f.slots }()
		f.call(context.WithoutCancel(ctx), m)
	})
}

func (f *subjectTrigger) call(ctx context.Context, m Message) {
	call := Call{
		App: f.state.name, Function: f.Function, Workflow: f.Workflow, Wait: f.Wait, Body: m.Data, Trigger: Subject, Route: f.Subject,
		Meta: metaOnly("subject", m.Subject),
	}
	pause := f.pause
	if m.Respond != nil {
		pause = never
	}
	err := f.await(0)
	if err == nil {
		err = f.gateway.acquireCall(f.state)
	}
	if err == nil {
		defer f.gateway.releaseCall(f.state)
		var answer Answer
		answer, err = f.gateway.invoke(ctx, &call, f.state, pause, func(a *Answer) error { return m.respond(a.Body) })
		defer answer.release()
	}
	if err != nil {
		// A requester gets the same problem document as an HTTP client.
		_ = m.respond(NewProblem(err).body())
	}
}

func (m *Message) respond(data []byte) error {
	if m.Respond == nil {
		return nil
	}
	if err := m.Respond(data); err != nil {
		return &outboard.Error{Op: "answer on " + m.Subject, Kind: outboard.Unreachable, Err: err}
	}
	return nil
}

// cronTrigger makes calls at the times of one schedule.
type cronTrigger struct {
	*CronTrigger
	gateway *Gateway
	state   *appState
	await   func(limit time.Duration) error
	pause   func(time.Duration) bool
}

func (c *CronTrigger) zone() *time.Location {
	if c.Zone == nil {
		return time.UTC
	}
	return c.Zone
}

func (c *CronTrigger) same(b *CronTrigger) bool {
	return c.Schedule == b.Schedule && c.zone().String() == b.zone().String() && c.Target == b.Target && bytes.Equal(c.Body, b.Body)
}

// The wall clock is read every clockCheck, since it may be set; a time more than missedAfter ago
// was missed. A time waits for its app for awaitLimit at most: the nodes remember for an hour which
// times have been fired, and one that was ready later would fire them again.
const (
	clockCheck  = time.Minute
	missedAfter = 30 * time.Second
	awaitLimit  = 30 * time.Minute
)

// startLimit is how long the start of a workflow is repeated.
const startLimit = awaitLimit

func (c *cronTrigger) run(ctx context.Context, calls *sync.WaitGroup) {
	schedule, err := ParseSchedule(c.Schedule)
	if err != nil {
		return // SetApps has refused such a schedule
	}
	now := c.gateway.opts.Now
	next := schedule.Next(now().In(c.zone()))
	for !next.IsZero() {
		unseen, ok := c.sleepUntil(ctx, next)
		if !ok {
			return
		}
		if late := now().Sub(next); late >= 0 && late < missedAfter {
			tick := next
			calls.Go(func() { c.fire(context.WithoutCancel(ctx), tick) })
			next = schedule.Next(next)
		} else {
			next = schedule.Next(now().Add(-unseen).In(c.zone()))
		}
	}
}

// sleepUntil waits until a time of the wall clock, or until the clock has been set back: then earlier
// times come again, and unseen is how long ago they may have begun to, up to missedAfter. It returns
// false if ctx ended.
func (c *cronTrigger) sleepUntil(ctx context.Context, t time.Time) (unseen time.Duration, ok bool) {
	before := c.gateway.opts.Now().Round(0)
	for {
		now := c.gateway.opts.Now().Round(0) // of the wall clock alone
		left := t.Sub(now)
		if left <= 0 {
			return 0, ctx.Err() == nil
		}
		if before.Sub(now) >= missedAfter {
			return min(unseen, missedAfter), ctx.Err() == nil
		}
		before = now
		unseen = min(left, clockCheck)
		timer := time.NewTimer(unseen)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, false
		}
	}
}

// fire makes the call for one time, unless another node makes it.
func (c *cronTrigger) fire(ctx context.Context, tick time.Time) {
	if err := c.await(max(awaitLimit-c.gateway.opts.Now().Sub(tick), 1)); err != nil {
		c.gateway.log.Warn("a schedule was left out: its app did not become ready", "app", c.state.name, "schedule", c.Schedule, "error", err)
		return
	}
	// The election comes after await, so that the node that is ready first makes the call.
	mine, err := c.first(ctx, tick)
	if err != nil {
		c.gateway.log.Warn("a schedule was left out: the node that fires it could not be elected", "app", c.state.name, "schedule", c.Schedule, "error", err)
		return
	}
	if !mine {
		return
	}
	when := tick.UTC().Format(time.RFC3339)
	call := Call{
		App: c.state.name, Function: c.Function, Workflow: c.Workflow, Wait: c.Wait, Body: c.Body, Trigger: Cron, Route: c.Schedule,
		Meta: metaOnly("tick", when),
	}
	answer, err := c.gateway.invoke(ctx, &call, c.state, c.pause, func(*Answer) error { return nil })
	defer answer.release()
	if err != nil && !errors.Is(err, context.Canceled) {
		c.gateway.log.Warn("a schedule's call failed", "app", c.state.name, "schedule", c.Schedule, "error", err)
	}
}

func (c *cronTrigger) first(ctx context.Context, tick time.Time) (bool, error) {
	if c.gateway.opts.Once == nil {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, missedAfter) // times must not add up while the pool's state is away
	defer cancel()
	return c.gateway.opts.Once.First(ctx, c.key(tick))
}

// key identifies one time of one schedule on all nodes. Schedules that differ only in their bodies
// are different.
func (c *cronTrigger) key(tick time.Time) string {
	return "cron/" + c.state.name + "/" + c.target() + "/" + c.Schedule + "/" + c.zone().String() + "/" + tick.UTC().Format(time.RFC3339) + "/" + string(c.Body)
}

func (t Target) target() string {
	if t.Workflow != "" {
		return "workflow:" + t.Workflow
	}
	return "function:" + t.Function
}
