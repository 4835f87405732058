package core

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

const (
	// maxTasks bounds the tasks that end between one event and the next, so that a
	// workflow that loops without an action ends.
	maxTasks = 20_000
	// maxEvents bounds an execution's log, which a node that takes the execution over
	// has to replay.
	maxEvents = 100_000
	// maxHistory bounds the history of tasks that commands show.
	maxHistory = 10_000
	// maxHeld bounds the values that running tasks hold, in bytes. Each is small, but the branches of a
	// fork may be thousands.
	maxHeld = 256 << 20
	// maxErrorText bounds each text of an error, which the history keeps.
	maxErrorText = 4 << 10
)

// Execution is one run of a workflow. It is not safe for use by several
// goroutines.
type Execution struct {
	id       string
	workflow *dsl.Workflow

	now     time.Time
	started time.Time
	end     time.Time // the deadline, zero for none
	status  Status
	result  Finished

	raw     any // the workflow's input before input.from
	context any

	live    map[string]*node // running tasks by their paths
	root    *node
	history []*Task
	held    int // the size of the values that the live tasks hold, in bytes

	events, maxEvents int

	// The rest is empty between events.
	queue   []func()
	tasks   int
	budget  *dsl.Budget // of all expressions that this event evaluates
	actions []Action
}

// New creates an execution that waits for its [Started].
func New(id string, w *dsl.Workflow) *Execution {
	return &Execution{id: id, workflow: w, status: Pending, live: map[string]*node{}, maxEvents: maxEvents}
}

// Apply applies an event and returns the actions that follow. The caller must not change
// the event afterwards. An error means that the log is invalid; the state is unchanged.
func (x *Execution) Apply(e Event) ([]Action, error) {
	if (e.Started != nil) != (x.status == Pending) {
		return nil, errors.New("an execution must be started first, and once")
	}
	if e.At.After(x.now) {
		x.now = e.At
	}
	x.tasks, x.budget = 0, &dsl.Budget{}
	x.events++
	x.dispatch(e)
	x.drain()
	if x.events >= x.maxEvents && !x.status.Over() {
		x.finish(faulted(newError(dsl.ErrorRuntime, 508, "the execution is too long", errLong)))
	}
	actions := x.actions
	x.actions, x.budget = nil, nil
	return actions, nil
}

func (x *Execution) dispatch(e Event) {
	switch {
	case e.Started != nil:
		x.start(e.Started)
	case x.status.Over():
	case e.Step != nil:
		x.stepped(e.Step)
	case e.Fired != nil:
		x.fired(e.Fired)
	case e.Emitted != nil:
		x.emitted(e.Emitted)
	case e.Received != nil:
		x.received(e.Received)
	case e.Cancelled != nil:
		x.finish(Finished{Status: Abandoned, Error: cancellation(e.Cancelled.Reason)})
	}
}

// drain runs queued work until the queue is empty. Queued work may enqueue more.
func (x *Execution) drain() {
	for len(x.queue) > 0 {
		next := x.queue[0]
		x.queue = x.queue[1:]
		next()
	}
	x.queue = nil
}

// enqueue runs f after the work that is queued already, unless the task ends before.
func (x *Execution) enqueue(n *node, f func()) {
	x.queue = append(x.queue, func() {
		if !n.ended && !x.status.Over() {
			f()
		}
	})
}

func (x *Execution) start(s *Started) {
	x.status, x.started = Running, x.now
	var err error
	switch {
	case s.Value != nil:
		x.raw = Reference{Step: InputStep, Size: s.Value.Size, Type: s.Value.Type}.data()
	case len(s.Input) > 0:
		x.raw, err = Decode(s.Input)
	}
	if err != nil {
		x.finish(faulted(newError(dsl.ErrorValidation, 400, "the input is no JSON", err)))
		return
	}
	x.setEnd(s.Deadline)
	x.root = &node{x: x, began: x.now, attempt: 1}
	input, err := x.workflow.Input.Eval(x.scope(x.root, x.raw))
	if err != nil {
		x.finish(faulted(expressionError(err)))
		return
	}
	x.root.input = input
	x.root.run = &sequence{node: x.root, tasks: x.workflow.Do}
	x.root.run.begin(input)
}

// setEnd sets the timer of the deadline or of the workflow's timeout.
func (x *Execution) setEnd(deadline time.Time) {
	x.end = deadline
	if t := x.workflow.Timeout; t > 0 {
		if limit := x.started.Add(t); x.end.IsZero() || limit.Before(x.end) {
			x.end = limit
		}
	}
	if !x.end.IsZero() {
		x.emitAction(Timer{Kind: DeadlineTimer, At: x.end})
	}
}

// finish ends the execution and stops all actions in progress.
func (x *Execution) finish(f Finished) {
	if x.status.Over() {
		return
	}
	x.status, x.result = f.Status, f
	if len(x.live) > 0 || !x.end.IsZero() {
		x.emitAction(Stop{})
	}
	for _, n := range x.live {
		n.endHistory(Abandoned, nil)
		n.ended = true
		x.release(n)
	}
	clear(x.live)
	x.emitAction(Finish{Finished: f})
}

// complete ends the execution with the output of its last task.
func (x *Execution) complete(output any) {
	output, err := x.workflow.Output.Eval(x.scope(x.root, output))
	if err != nil {
		x.finish(faulted(expressionError(err)))
		return
	}
	text, err := gojq.Marshal(output)
	if err != nil {
		x.finish(faulted(expressionError(err)))
		return
	}
	x.finish(Finished{Status: Completed, Output: text})
}

func faulted(err *dsl.Error) Finished { return Finished{Status: Faulted, Error: err} }

func (x *Execution) emitAction(a Action) { x.actions = append(x.actions, a) }

// Pending returns the actions that are neither complete nor stopped.
func (x *Execution) Pending() []Action {
	if x.status.Over() {
		return []Action{Finish{Finished: x.result}}
	}
	var actions []Action
	if !x.end.IsZero() {
		actions = append(actions, Timer{Kind: DeadlineTimer, At: x.end})
	}
	if x.root != nil {
		actions = x.root.pending(actions)
	}
	return actions
}

// Wants reports whether an event would change the state.
func (x *Execution) Wants(e Event) bool {
	switch {
	case e.Started != nil:
		return x.status == Pending
	case x.status.Over():
		return false
	case e.Step != nil:
		return x.waitsFor(e.Step.Path, "call") || x.waitsFor(e.Step.Path, "run")
	case e.Emitted != nil:
		return x.waitsFor(e.Emitted.Path, "emit")
	case e.Received != nil:
		x.budget = &dsl.Budget{}
		n := x.live[e.Received.Path]
		wanted := n != nil && n.expects(e.Received.Event)
		x.budget = nil
		return wanted
	case e.Fired != nil:
		return x.expectsTimer(e.Fired)
	}
	return true
}

func (x *Execution) waitsFor(path, kind string) bool {
	n := x.live[path]
	return n != nil && n.leaf && n.kind() == kind
}

// Status returns the phase of the execution.
func (x *Execution) Status() Status {
	if x.status != Running {
		return x.status
	}
	for _, n := range x.live {
		if n.leaf && (n.kind() == "call" || n.kind() == "emit") {
			return Running
		}
	}
	return Waiting
}

// hold counts a value that a task has made and holds until it ends. If the tasks hold too much the
// execution ends, and hold returns false.
func (x *Execution) hold(n *node, v any) bool {
	size, ok := dsl.Size(v, maxHeld-x.held)
	n.held += size
	x.held += size
	if !ok {
		x.finish(faulted(newError(dsl.ErrorRuntime, 507, "the workflow holds too much", errHeld)))
	}
	return ok
}

// release discounts the values that a task holds.
func (x *Execution) release(n *node) {
	x.held -= n.held
	n.held = 0
}

// Held returns the size of the values that the running tasks hold, in bytes.
func (x *Execution) Held() int { return x.held }

// Result returns the outcome of an execution that is over.
func (x *Execution) Result() Finished { return x.result }

// Task is one run of a task, as commands show it.
type Task struct {
	Path     string
	Task     *dsl.Task
	Kind     string
	Attempt  int
	Round    int
	Status   Status
	Began    time.Time
	Ended    time.Time
	Error    *dsl.Error
	Function string
	// Service is the protocol of a call to a service, "" for others.
	Service string
}

// History returns the runs of tasks in the order in which they began, the first
// ten thousand of them.
func (x *Execution) History() []Task {
	out := make([]Task, len(x.history))
	for i, t := range x.history {
		out[i] = *t
	}
	return out
}

// Now returns the time of the latest event.
func (x *Execution) Now() time.Time { return x.now }

// Started returns when the execution began, and its deadline, zero for none.
func (x *Execution) Started() (at, deadline time.Time) { return x.started, x.end }

func cancellation(reason string) *dsl.Error {
	return &dsl.Error{Type: dsl.ErrorRuntime, Status: 499, Title: "cancelled", Detail: reason}
}

func newError(kind string, status int, title string, err error) *dsl.Error {
	e := &dsl.Error{Type: kind, Status: status, Title: title}
	if err != nil {
		e.Detail = truncate(err.Error())
	}
	return e
}

// truncate bounds a text of an error.
func truncate(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "") + "..."
}

func expressionError(err error) *dsl.Error {
	return newError(dsl.ErrorExpression, 400, "an expression failed", err)
}

func timeoutError(subject string, after time.Duration) *dsl.Error {
	return newError(dsl.ErrorTimeout, 408, "timeout", fmt.Errorf("%s took longer than %s", subject, after))
}
