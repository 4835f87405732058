package dsl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

// Limits of one evaluation.
const (
	// maxValueSize bounds a value's size: the bytes of its texts and 16 for each of its parts.
	maxValueSize = 4 << 20
	// maxIndex bounds the index of an array's element that is set.
	maxIndex = 1 << 16
	// maxDepth bounds the nesting of values and of expressions.
	maxDepth = 512
)

// arguments are the variables that every expression may use.
var arguments = []string{"$context", "$input", "$output", "$task", "$workflow", "$runtime", nowVariable, budgetVariable}

// nowVariable holds the value of "now" in an expression.
const nowVariable = "$__now"

// budgetVariable holds the *Budget that the guards charge.
const budgetVariable = "$__budget"

// Scope is the environment of an evaluation: its input and its variables.
type Scope struct {
	// Data is ".".
	Data any
	// Context, Input, Output, Task, Workflow and Runtime are the variables of
	// these names.
	Context, Input, Output, Task, Workflow, Runtime any
	// Locals are variables of loops and of caught errors.
	Locals *Locals
	// Now is the time.
	Now time.Time
	// Budget is shared by the evaluations that it bounds. Nil means one for this evaluation alone.
	Budget *Budget
}

// Locals is an immutable linked list of variables. Nil is the empty list.
type Locals struct {
	Name  string
	Value any
	Next  *Locals
}

// With returns the list with a variable added.
func (l *Locals) With(name string, value any) *Locals {
	return &Locals{Name: name, Value: value, Next: l}
}

func (l *Locals) value(name string) any {
	for ; l != nil; l = l.Next {
		if l.Name == name {
			return l.Value
		}
	}
	return nil
}

// Expr is a compiled expression.
type Expr struct {
	// Text is its source.
	Text   string
	code   *gojq.Code
	locals []string
	// slicing means that a result can be a part of a larger array or text.
	slicing bool
}

// compile compiles an expression that may use the arguments and the locals.
func compile(text string, locals []string) (*Expr, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("an expression of %d bytes: %d is the most", len(text), maxExpression)
	}
	if nested(text) > maxDepth {
		return nil, errors.New("an expression with so many brackets in each other: simplify it")
	}
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the expression is no jq: %w", err)
	}
	query, slicing, err := guard(text, query)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(arguments)
	for _, name := range locals {
		names = append(names, "$"+name)
	}
	code, err := gojq.Compile(query, append(guards(), gojq.WithVariables(names))...)
	if err != nil {
		return nil, fmt.Errorf("the expression does not compile: %w%s", err, hint(err))
	}
	return &Expr{Text: text, code: code, locals: locals, slicing: slicing}, nil
}

const maxExpression = 64 << 10

// nested returns the maximal nesting of brackets, those within texts included.
func nested(text string) int {
	deep, most := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(', '[', '{':
			deep++
			most = max(most, deep)
		case ')', ']', '}':
			deep--
		}
	}
	return most
}

// hint returns the remedy for a name that is not defined.
func hint(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "$secrets"), strings.Contains(text, "$authorization"):
		return "; functions have secrets, workflows do not"
	case strings.Contains(text, "variable not defined"):
		return "; there are $context, $input, $output, $task, $workflow, $runtime, and what loops and catch define"
	case strings.Contains(text, "input(s)/0"):
		return "; $input is the task's input"
	}
	return ""
}

// Eval evaluates the expression, which must have exactly one result.
func (e *Expr) Eval(s Scope) (any, error) {
	budget := s.Budget
	if budget == nil {
		budget = &Budget{}
	}
	values := make([]any, 0, len(arguments)+len(e.locals))
	values = append(values, s.Context, s.Input, s.Output, s.Task, s.Workflow, s.Runtime, seconds(s.Now), budget)
	for _, name := range e.locals {
		values = append(values, s.Locals.value(name))
	}
	iter := e.code.RunWithContext(&steps{left: maxEvalSteps, budget: budget}, s.Data, values...)
	result, err := singleResult(iter)
	if err != nil {
		return nil, err
	}
	if _, err := measure(result, maxValueSize); err != nil {
		return nil, err
	}
	if e.slicing {
		result = unshared(result)
	}
	return result, nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func singleResult(iter gojq.Iter) (any, error) {
	result, ok := iter.Next()
	if !ok {
		return nil, errors.New("the expression has no result")
	}
	if err, ok := result.(error); ok {
		return nil, err
	}
	second, ok := iter.Next()
	if !ok {
		return result, nil
	}
	if err, ok := second.(error); ok {
		return nil, err
	}
	return nil, errors.New("the expression has several results: put them into an array, [ ... ]")
}

// True evaluates a condition, which must be a boolean or null. A nil expression
// is true.
func (e *Expr) True(s Scope) (bool, error) {
	if e == nil {
		return true, nil
	}
	result, err := e.Eval(s)
	if err != nil {
		return false, err
	}
	switch v := result.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	}
	return false, fmt.Errorf("the condition %q is %s and not true or false", e.Text, gojq.TypeOf(result))
}

// steps is a context that is done when the budget is used up. The interpreter checks it before each
// of its instructions, so the limit does not depend on how fast a machine is.
type steps struct {
	left   int
	budget *Budget
	err    error
}

func (s *steps) Deadline() (time.Time, bool) { return time.Time{}, false }
func (s *steps) Value(any) any               { return nil }

func (s *steps) Done() <-chan struct{} {
	if s.err == nil {
		s.err = s.budget.step()
	}
	if s.left--; s.left < 0 && s.err == nil {
		s.err = errSteps
	}
	if s.err == nil {
		return nil
	}
	ready := make(chan struct{})
	close(ready)
	return ready
}

func (s *steps) Err() error { return s.err }

var _ context.Context = (*steps)(nil)
