package core

import (
	"errors"
	"time"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

var errCircle = errors.New("20000 tasks ended and none of them called, waited or listened")

var errHeld = errors.New("its tasks hold more than 256 MiB: pass large data between functions, whose results are kept outside of the workflow")

var errLong = errors.New("it has 100000 records: let it start another one, or leave such loops to a function")

// RuntimeName is the value of $runtime.name in expressions.
const RuntimeName = "outboard"

// scope returns the variables of a task's expressions.
func (x *Execution) scope(n *node, data any) dsl.Scope {
	s := dsl.Scope{
		Data: data, Context: x.context, Now: x.now, Locals: n.locals, Budget: x.budget,
		Runtime:  map[string]any{"name": RuntimeName},
		Workflow: map[string]any{"id": x.id, "definition": definition(x.workflow), "input": x.raw, "startedAt": moment(x.started)},
	}
	if n.task == nil {
		return s
	}
	s.Input = n.input
	s.Task = map[string]any{
		"name": n.task.Name, "reference": n.task.Reference, "definition": n.task.Definition,
		"input": n.raw, "output": n.output, "startedAt": moment(n.began),
	}
	return s
}

func definition(w *dsl.Workflow) any {
	if w.Definition == nil {
		return nil
	}
	return w.Definition
}

// moment returns a time in the DSL's representation.
func moment(t time.Time) any {
	return map[string]any{
		"iso8601": t.UTC().Format(time.RFC3339Nano),
		"epoch":   map[string]any{"seconds": int(t.Unix()), "milliseconds": int(t.UnixMilli())},
	}
}

// errorData returns an error in the representation of expressions.
func errorData(e *dsl.Error) any {
	return map[string]any{"type": e.Type, "status": e.Status, "title": e.Title, "detail": e.Detail, "instance": e.Instance}
}
