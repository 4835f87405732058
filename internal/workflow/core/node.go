package core

import (
	"time"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// node is a running task, or the workflow itself.
type node struct {
	x        *Execution
	parent   *node
	path     string
	task     *dsl.Task // nil for the workflow
	locals   *dsl.Locals
	raw      any // the input before input.from
	input    any // the input after input.from
	output   any // the output before output.as
	began    time.Time
	attempt  int // of the nearest try around it
	round    int // of the nearest loop around it
	children []*node
	ended    bool
	entry    *Task

	// leaf reports whether the task itself waits for an event.
	leaf   bool
	action Action // the action of a leaf
	held   int    // the size of the values that the node has made and holds, in bytes
	heard  *hearing
	run    runner // controls the children of a composite task
}

// runner is the control flow of a composite task.
type runner interface {
	begin(input any)
	// ended is called when a child has completed, with its flow directive.
	ended(child *node, output any, then string)
	// failed is called when a child has failed.
	failed(child *node, err *dsl.Error)
}

func (n *node) kind() string {
	t := n.task
	switch {
	case t == nil:
		return "workflow"
	case t.Call != nil:
		return "call"
	case t.Do != nil:
		return "do"
	case t.Emit != nil:
		return "emit"
	case t.For != nil:
		return "for"
	case t.Fork != nil:
		return "fork"
	case t.Listen != nil:
		return "listen"
	case t.Raise != nil:
		return "raise"
	case t.Run != nil:
		return "run"
	case t.Set != nil:
		return "set"
	case t.Switch != nil:
		return "switch"
	case t.Try != nil:
		return "try"
	}
	return "wait"
}

// child creates a task below the node.
func (n *node) child(t *dsl.Task, path string, input any, locals *dsl.Locals) *node {
	c := &node{
		x: n.x, parent: n, path: path, task: t, locals: locals, raw: input,
		began: n.x.now, attempt: n.attempt, round: n.round,
	}
	n.children = append(n.children, c)
	n.x.live[path] = c
	return c
}

// start evaluates the task's condition and its input, and begins it. The condition reads the input
// before input.from: a task that is skipped evaluates no other expression.
func (n *node) start() {
	x := n.x
	if x.tasks++; x.tasks > maxTasks {
		x.finish(faulted(newError(dsl.ErrorRuntime, 508, "the workflow runs in a circle",
			errCircle)))
		return
	}
	n.beginHistory()
	n.input = n.raw
	yes, err := n.task.If.True(x.scope(n, n.raw))
	switch {
	case err != nil:
		n.fail(expressionError(err))
		return
	case !yes:
		n.skip()
		return
	}
	if n.input, err = n.task.Input.Eval(x.scope(n, n.raw)); err != nil {
		n.fail(expressionError(err))
		return
	}
	if n.task.Input != nil && !n.x.hold(n, n.input) {
		return
	}
	n.perform()
}

// skip skips the task: its input becomes the input of the next one.
func (n *node) skip() {
	if n.entry != nil {
		n.entry.Kind = "skipped"
	}
	n.endHistory(Completed, nil)
	n.leave()
	n.parent.run.ended(n, n.raw, dsl.Continue)
}

// perform executes the task by its kind.
func (n *node) perform() {
	if d := n.task.Timeout; d > 0 {
		n.x.emitAction(Timer{Path: n.path, Kind: TimeoutTimer, At: n.began.Add(d)})
	}
	t := n.task
	switch {
	case t.Call != nil:
		n.call()
	case t.Emit != nil:
		n.emit()
	case t.Listen != nil:
		n.listen()
	case t.Raise != nil:
		n.raise()
	case t.Run != nil:
		n.runWorkflow()
	case t.Set != nil:
		n.set()
	case t.Switch != nil:
		n.switchCase()
	case t.Wait != nil:
		n.wait()
	default:
		n.run = n.runner()
		n.run.begin(n.input)
	}
}

func (n *node) runner() runner {
	t := n.task
	switch {
	case t.For != nil:
		return &loop{node: n}
	case t.Fork != nil:
		return &fork{node: n}
	case t.Try != nil:
		return &try{node: n}
	}
	return &sequence{node: n, tasks: t.Do, prefix: n.path, locals: n.locals}
}

// complete ends the task successfully.
func (n *node) complete(output any, then string) {
	x := n.x
	n.output = output
	output, err := n.task.Output.Eval(x.scope(n, output))
	if err != nil {
		n.fail(expressionError(err))
		return
	}
	if n.task.Export != nil {
		s := x.scope(n, output)
		s.Output = output
		exported, err := n.task.Export.Eval(s)
		if err != nil {
			n.fail(expressionError(err))
			return
		}
		x.context = exported
	}
	n.endHistory(Completed, nil)
	n.leave()
	if then == dsl.End {
		x.complete(output)
		return
	}
	n.parent.run.ended(n, output, then)
}

// fail ends the task with an error, which an enclosing try may catch.
func (n *node) fail(err *dsl.Error) {
	if err.Instance == "" && n.task != nil {
		err.Instance = n.task.Reference
	}
	if n.parent == nil {
		n.x.finish(faulted(err))
		return
	}
	n.endHistory(Faulted, err)
	n.stopChildren()
	n.leave()
	n.parent.run.failed(n, err)
}

// leave removes the task from the running ones, and stops its own timer.
func (n *node) leave() {
	if n.ended {
		return
	}
	n.ended = true
	n.x.release(n)
	delete(n.x.live, n.path)
	if n.parent != nil {
		n.parent.forget(n)
	}
	if n.task.Timeout > 0 && n.began.Add(n.task.Timeout).After(n.x.now) {
		n.x.emitAction(Stop{Path: n.path})
	}
}

func (n *node) forget(child *node) {
	for i, c := range n.children {
		if c == child {
			n.children = append(n.children[:i], n.children[i+1:]...)
			return
		}
	}
}

// stop cancels the task and all tasks below it.
func (n *node) stop() {
	if n.ended {
		return
	}
	n.x.emitAction(Stop{Path: n.path})
	n.parent.forget(n)
	n.abandon()
}

func (n *node) abandon() {
	n.endHistory(Abandoned, nil)
	n.ended = true
	n.x.release(n)
	delete(n.x.live, n.path)
	for _, c := range n.children {
		c.abandon()
	}
	n.children = nil
}

func (n *node) stopChildren() {
	for len(n.children) > 0 {
		n.children[0].stop()
	}
}

// await makes the task a leaf that waits for an action.
func (n *node) await(a Action) {
	n.leaf, n.action = true, a
	n.x.emitAction(a)
}

// pending appends the actions of the task and of the tasks below it.
func (n *node) pending(actions []Action) []Action {
	if n.task != nil && n.task.Timeout > 0 {
		actions = append(actions, Timer{Path: n.path, Kind: TimeoutTimer, At: n.began.Add(n.task.Timeout)})
	}
	if n.leaf {
		actions = append(actions, n.action)
	}
	if t, ok := n.run.(*try); ok {
		actions = t.pending(actions)
	}
	for _, c := range n.children {
		actions = c.pending(actions)
	}
	return actions
}

// beginHistory begins the task's entry in the history.
func (n *node) beginHistory() {
	if len(n.x.history) >= maxHistory {
		return
	}
	n.entry = &Task{
		Path: n.path, Task: n.task, Kind: n.kind(), Attempt: n.attempt, Round: n.round, Status: Running, Began: n.began,
	}
	if n.task.Call != nil {
		n.entry.Function = n.task.Call.Function
		if s := n.task.Call.Service; s != nil {
			n.entry.Service = s.Protocol
		}
	}
	n.x.history = append(n.x.history, n.entry)
}

// endHistory ends the task's entry in the history.
func (n *node) endHistory(s Status, err *dsl.Error) {
	if n.entry != nil && !n.entry.Status.Over() {
		n.entry.Status, n.entry.Ended, n.entry.Error = s, n.x.now, err
	}
}
