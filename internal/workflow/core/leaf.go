package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/itchyny/gojq"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

func (n *node) call() {
	c := n.task.Call
	if c.Service != nil {
		n.callService(c.Service)
		return
	}
	body, err := c.Body.Eval(n.x.scope(n, n.input))
	if err != nil {
		n.fail(expressionError(err))
		return
	}
	meta, err := n.meta(c.Meta)
	if err != nil {
		n.fail(expressionError(err))
		return
	}
	if c.Body != nil && !n.x.hold(n, body) {
		return
	}
	n.await(Call{Path: n.path, Task: n.task, Function: c.Function, Entry: c.Entry, Body: body, Meta: meta})
}

// callService calls a service outside of the app.
func (n *node) callService(s *dsl.Service) {
	with, err := s.With.Eval(n.x.scope(n, n.input))
	if err != nil {
		n.fail(expressionError(err))
		return
	}
	if !n.x.hold(n, with) {
		return
	}
	n.await(ServiceCall{Path: n.path, Task: n.task, Protocol: s.Protocol, With: with})
}

// runWorkflow runs another workflow of the app.
func (n *node) runWorkflow() {
	input, err := n.task.Run.Input.Eval(n.x.scope(n, n.input))
	if err != nil {
		n.fail(expressionError(err))
		return
	}
	if n.task.Run.Input != nil && !n.x.hold(n, input) {
		return
	}
	n.await(RunWorkflow{Path: n.path, Run: n.task.Run, Input: input})
}

// meta evaluates the call's metadata.
func (n *node) meta(t *dsl.Template) (map[string]string, error) {
	if t == nil {
		return nil, nil //nolint:nilnil // There are none.
	}
	v, err := t.Eval(n.x.scope(n, n.input))
	if err != nil {
		return nil, err
	}
	values, _ := v.(map[string]any)
	meta := make(map[string]string, len(values))
	for name, v := range values {
		switch v := v.(type) {
		case string:
			meta[name] = v
		case nil:
		case []any, map[string]any:
			return nil, fmt.Errorf("meta %s is %s and no text", name, gojq.TypeOf(v))
		default:
			text, err := gojq.Marshal(v)
			if err != nil {
				return nil, err
			}
			meta[name] = string(text)
		}
	}
	return meta, nil
}

// stepped applies the completion of a call.
func (x *Execution) stepped(s *Step) {
	n := x.live[s.Path]
	if n == nil || !n.leaf || n.kind() != "call" && n.kind() != "run" {
		return
	}
	switch {
	case s.Error != nil:
		e := *s.Error
		n.fail(&e)
	case n.task.Run != nil && !n.task.Run.Await:
		n.complete(n.input, n.task.Then)
	case s.Value != nil:
		n.complete(Reference{Step: s.Path, Size: s.Value.Size, Type: s.Value.Type}.data(), n.task.Then)
	default:
		x.stepData(n, s.Data)
	}
}

func (x *Execution) stepData(n *node, text json.RawMessage) {
	if len(text) == 0 {
		n.complete(nil, n.task.Then)
		return
	}
	data, err := Decode(text)
	if err != nil {
		n.fail(newError(dsl.ErrorCommunication, 502, "the function's result is no JSON", err))
		return
	}
	n.complete(data, n.task.Then)
}

func (n *node) set() {
	output, err := n.task.Set.Eval(n.x.scope(n, n.input))
	if err != nil {
		n.fail(expressionError(err))
		return
	}
	n.complete(output, n.task.Then)
}

// switchCase follows the first case whose condition is true, or else the default, or
// else the task's own directive.
func (n *node) switchCase() {
	then := n.task.Then
	for _, c := range n.task.Switch {
		if c.When == nil {
			then = c.Then
			continue
		}
		yes, err := c.When.True(n.x.scope(n, n.input))
		if err != nil {
			n.fail(expressionError(err))
			return
		}
		if yes {
			then = c.Then
			break
		}
	}
	n.complete(n.input, then)
}

func (n *node) raise() {
	v, err := n.task.Raise.Error.Eval(n.x.scope(n, n.input))
	if err != nil {
		n.fail(expressionError(err))
		return
	}
	fields, _ := v.(map[string]any)
	n.fail(&dsl.Error{
		Type: truncate(textOf(fields["type"])), Status: int(whole(fields["status"])), Title: truncate(textOf(fields["title"])),
		Detail: truncate(textOf(fields["detail"])), Instance: truncate(textOf(fields["instance"])),
	})
}

func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	text, err := gojq.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

func (n *node) wait() {
	if n.task.Wait.For == 0 {
		n.complete(n.input, n.task.Then)
		return
	}
	n.await(Timer{Path: n.path, Kind: WaitTimer, At: n.began.Add(n.task.Wait.For)})
}

// fired delivers a timer's expiry to its task, if the task still waits for it.
func (x *Execution) fired(f *Fired) {
	if !x.expectsTimer(f) {
		return
	}
	if f.Timer == DeadlineTimer {
		x.finish(faulted(timeoutError("the execution", x.end.Sub(x.started))))
		return
	}
	n := x.live[f.Path]
	switch f.Timer {
	case WaitTimer:
		n.complete(n.input, n.task.Then)
	case TimeoutTimer:
		x.emitAction(Stop{Path: n.path})
		n.fail(timeoutError("the task", n.task.Timeout))
	case RetryTimer:
		n.run.(*try).retry() //nolint:errcheck,forcetypeassert // wantsTimer has checked it.
	case AttemptTimer:
		n.run.(*try).timeoutAttempt() //nolint:errcheck,forcetypeassert // wantsTimer has checked it.
	case DeadlineTimer:
	}
}

func (x *Execution) expectsTimer(f *Fired) bool {
	if f.Timer == DeadlineTimer {
		return !x.end.IsZero()
	}
	n := x.live[f.Path]
	if n == nil {
		return false
	}
	switch f.Timer {
	case WaitTimer:
		return n.leaf && n.kind() == "wait"
	case TimeoutTimer:
		return n.task.Timeout > 0
	default:
		t, ok := n.run.(*try)
		return ok && t.wantsTimer(f)
	}
}

// MaxEvent bounds an event in JSON, in bytes: no workflow receives a larger one.
const MaxEvent = 256 << 10

// emit publishes an event. Its id is derived from the path, so that consumers can
// recognise a second publication.
func (n *node) emit() {
	x := n.x
	v, err := n.task.Emit.With.Eval(x.scope(n, n.input))
	if err != nil {
		n.fail(expressionError(err))
		return
	}
	with, _ := v.(map[string]any)
	event := CloudEvent{"specversion": "1.0", "id": x.id + "/" + n.path, "time": x.now.UTC().Format(time.RFC3339Nano)}
	maps.Copy(event, with)
	if _, ok := event["data"]; ok && event["datacontenttype"] == nil {
		event["datacontenttype"] = "application/json"
	}
	text, err := json.Marshal(event)
	if err == nil && len(text) > MaxEvent {
		err = fmt.Errorf("it has %d bytes, at most %d", len(text), MaxEvent)
	}
	if err != nil {
		n.fail(newError(dsl.ErrorValidation, 400, "the event can't be published", err))
		return
	}
	if !n.x.hold(n, v) {
		return
	}
	n.await(Emit{Path: n.path, Event: event})
}

func (x *Execution) emitted(e *Emitted) {
	n := x.live[e.Path]
	if n == nil || !n.leaf || n.kind() != "emit" {
		return
	}
	event := n.action.(Emit).Event //nolint:errcheck,forcetypeassert // An emit task has no other action.
	n.complete(map[string]any(event), n.task.Then)
}
