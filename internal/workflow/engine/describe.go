package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Execution describes an execution.
type Execution struct {
	ID       ID
	Workflow string
	Version  int
	Status   core.Status
	// Started, Ended and Deadline are zero if there is none.
	Started, Ended, Deadline time.Time
	// Input and Output are JSON values; large values are described by InputValue and OutputValue
	// instead.
	Input, Output           json.RawMessage
	InputValue, OutputValue *core.Value
	Error                   *dsl.Error
	// Tenures are the times in which nodes owned the execution.
	Tenures []Tenure
	// Steps are set by Get only.
	Steps []Step
}

// Tenure is a time in which one node owned an execution.
type Tenure struct {
	Node   string
	Since  time.Time
	Reason string
}

// Step describes one run of a task.
type Step struct {
	// Path names this run, Task points to the task in the workflow, Name is its name.
	Path, Task, Name string
	// Kind is "call", "set", "wait", ..., or "skipped".
	Kind     string
	Function string
	// Service is the protocol of a call to a service, "" for others.
	Service string
	// Attempt is 1 for the first try; Round counts in loops, from 0.
	Attempt, Round int
	Status         core.Status
	// Ready is when everything that the step waited for was available, Ended when the step had
	// ended.
	Ready, Ended time.Time
	Error        *dsl.Error
	// Value is the result if it is large.
	Value *core.Value
	// Run describes the run of a call.
	Run Run
}

// Get describes an execution with all of its steps, wherever it runs.
func (e *Engine) Get(ctx context.Context, id ID) (Execution, error) {
	events, err := e.events(ctx, id)
	if err != nil {
		return Execution{}, fmt.Errorf("execution %s: %w", id, err)
	}
	out := summaryOf(id, events)
	r, err := e.replay(ctx, id, events)
	if err != nil {
		// Without the execution's workflow only the recorded steps are known.
		out.Steps = recorded(events)
		return out, nil //nolint:nilerr // The app may have been removed since.
	}
	out.Status = r.x.Status()
	_, out.Deadline = r.x.Started()
	out.Steps = steps(r.x.History(), recorded(events))
	return out, nil
}

// events reads an execution's log.
func (h *history) events(ctx context.Context, id ID) ([]core.Event, error) {
	records, err := h.log.Read(ctx, h.key(id))
	if err != nil {
		return nil, err
	}
	events, err := decode(records)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 || events[0].Started == nil {
		return nil, &outboard.Error{Op: "read the log", Kind: outboard.NotFound, Err: fmt.Errorf("%w: no execution of this name", ErrNotFound)}
	}
	return events, nil
}

// summaryOf describes an execution by its records alone, without its workflow.
func summaryOf(id ID, events []core.Event) Execution {
	s := events[0].Started
	out := Execution{
		ID: id, Workflow: s.Workflow, Version: s.Version, Status: core.Running, Started: events[0].At,
		Deadline: s.Deadline, Input: s.Input, InputValue: s.Value,
		Tenures: []Tenure{{Node: s.Node, Since: events[0].At, Reason: "started"}},
	}
	for _, event := range events {
		switch {
		case event.TakenOver != nil:
			out.Tenures = append(out.Tenures, Tenure{event.TakenOver.Node, event.At, event.TakenOver.Reason})
		case event.Finished != nil:
			f := event.Finished
			out.Status, out.Ended, out.Output, out.OutputValue, out.Error = f.Status, event.At, f.Output, f.Value, f.Error
		}
	}
	return out
}

// recorded returns the steps whose ends are recorded.
func recorded(events []core.Event) []Step {
	var out []Step
	for _, event := range events {
		s := event.Step
		if s == nil {
			continue
		}
		step := Step{Path: s.Path, Name: nameOf(s.Path), Kind: "call", Ended: event.At, Error: s.Error, Value: s.Value, Status: core.Completed}
		if s.Error != nil {
			step.Status = core.Faulted
		}
		// Unreadable details are left out.
		_ = json.Unmarshal(s.Run, &step.Run)
		step.Ready = step.Run.Began
		out = append(out, step)
	}
	return out
}

// nameOf returns the task's name in a path.
func nameOf(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if end := strings.IndexAny(name, "@[#!"); end >= 0 {
		name = name[:end]
	}
	return name
}

// steps joins the core's history of tasks with the records of calls.
func steps(history []core.Task, calls []Step) []Step {
	by := make(map[string]Step, len(calls))
	for _, c := range calls {
		by[c.Path] = c
	}
	out := make([]Step, len(history))
	for i, t := range history {
		out[i] = Step{
			Path: t.Path, Task: t.Task.Reference, Name: t.Task.Name, Kind: t.Kind, Function: t.Function, Service: t.Service,
			Attempt: t.Attempt, Round: t.Round, Status: t.Status, Ready: t.Began, Ended: t.Ended, Error: t.Error,
			Value: by[t.Path].Value, Run: by[t.Path].Run,
		}
	}
	return out
}
