package core

import (
	"fmt"

	"github.com/itchyny/gojq"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// sequence runs tasks one after another.
type sequence struct {
	node   *node
	tasks  *dsl.Tasks
	prefix string
	locals *dsl.Locals
	visits []int
	// finished is called with the output of the last task. Nil completes the node.
	finished func(output any)
}

func (s *sequence) begin(input any) {
	s.visits = make([]int, len(s.tasks.List))
	s.visit(0, input)
}

func (s *sequence) visit(i int, input any) {
	if i >= len(s.tasks.List) {
		s.finish(input)
		return
	}
	s.visits[i]++
	t := s.tasks.List[i]
	c := s.node.child(t, join(s.prefix, visited(t.Name, s.visits[i])), input, s.locals)
	c.x.enqueue(c, c.start)
}

func (s *sequence) ended(child *node, output any, then string) {
	switch then {
	case dsl.Continue:
		s.visit(s.tasks.Index(child.task.Name)+1, output)
	case dsl.Exit:
		s.finish(output)
	default:
		s.visit(s.tasks.Index(then), output)
	}
}

func (s *sequence) failed(_ *node, err *dsl.Error) { s.node.fail(err) }

func (s *sequence) finish(output any) {
	switch {
	case s.finished != nil:
		s.finished(output)
	case s.node.task == nil:
		s.node.x.complete(output)
	default:
		s.node.complete(output, s.node.task.Then)
	}
}

// loop runs its tasks for each item of a list. The output of an iteration is the input
// of the next one.
type loop struct {
	node  *node
	items []any
	at    int
	round *sequence
}

func (l *loop) begin(input any) {
	f := l.node.task.For
	v, err := f.In.Eval(l.node.x.scope(l.node, input))
	if err != nil {
		l.node.fail(expressionError(err))
		return
	}
	switch v := v.(type) {
	case []any:
		if l.items = v; !l.node.x.hold(l.node, v) {
			return
		}
	case nil:
	default:
		l.node.fail(expressionError(fmt.Errorf("for.in is %s and no array", gojq.TypeOf(v))))
		return
	}
	l.next(input)
}

func (l *loop) next(data any) {
	n, f := l.node, l.node.task.For
	if l.at >= len(l.items) {
		n.complete(data, n.task.Then)
		return
	}
	locals := n.locals.With(f.Each, l.items[l.at]).With(f.At, l.at)
	if f.While != nil {
		s := n.x.scope(n, data)
		s.Locals = locals
		yes, err := f.While.True(s)
		if err != nil {
			n.fail(expressionError(err))
			return
		}
		if !yes {
			n.complete(data, n.task.Then)
			return
		}
	}
	n.round = l.at
	l.round = &sequence{node: n, tasks: f.Do, prefix: round(n.path, l.at), locals: locals, finished: l.rounded}
	l.at++
	l.round.begin(data)
}

func (l *loop) rounded(output any) { l.node.x.enqueue(l.node, func() { l.next(output) }) }

func (l *loop) ended(child *node, output any, then string) { l.round.ended(child, output, then) }
func (l *loop) failed(_ *node, err *dsl.Error)             { l.node.fail(err) }

// fork runs tasks in parallel.
type fork struct {
	node    *node
	outputs []any
	left    int // branches that have not ended
}

func (f *fork) begin(input any) {
	branches := f.node.task.Fork.Branches.List
	f.outputs, f.left = make([]any, len(branches)), len(branches)
	for _, t := range branches {
		c := f.node.child(t, join(f.node.path, t.Name), input, f.node.locals)
		c.x.enqueue(c, c.start)
	}
}

func (f *fork) ended(child *node, output any, _ string) {
	n := f.node
	if n.task.Fork.Compete {
		n.stopChildren()
		n.complete(output, n.task.Then)
		return
	}
	if !n.x.hold(n, output) {
		return
	}
	f.outputs[n.task.Fork.Branches.Index(child.task.Name)] = output
	if f.left--; f.left == 0 {
		n.complete(f.outputs, n.task.Then)
	}
}

// failed ends the fork, unless its branches compete and another one may win.
func (f *fork) failed(_ *node, err *dsl.Error) {
	if f.left--; f.node.task.Fork.Compete && f.left > 0 {
		return
	}
	f.node.fail(err)
}
