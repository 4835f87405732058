package tenant

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// steps runs the functions of executions: it implements engine.Functions.
type steps struct{ *Tenant }

// Call implements engine.Functions.
func (s steps) Call(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
	if c.Node == "" {
		c.Node = string(s.planner.place(&c))
	}
	defer s.underWay.begin(c.Execution, c.Path, cmp.Or(outboard.NodeID(c.Node), s.config.Node))()
	v, err := s.versionOf(ctx, c.App, c.Version)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer s.ended(v)
	if c.Workflow != nil {
		s.planner.launch(&c, v)
	}
	if c.Node != "" && c.Node != string(s.config.Node) {
		return s.elsewhere(ctx, c)
	}
	f := v.functions[c.Function]
	if f == nil {
		return engine.Outcome{}, outboard.Errorf(outboard.NotFound, "", "app %s has no function %s", c.App, c.Function)
	}
	return s.callHere(ctx, f, c)
}

// elsewhere has another node run a step. What the step gets is copied there.
func (s steps) elsewhere(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
	if c.At != nil {
		body, err := s.values.at(c.Execution, *c.At)
		if err != nil {
			return engine.Outcome{}, err
		}
		c.Body = body
	}
	node, began := outboard.NodeID(c.Node), time.Now()
	out, err := s.peers.step(ctx, c)
	if err == nil {
		s.planner.links.note(node, outboard.Bytes(len(c.Body)+len(out.Body)), time.Since(began)-out.Run.Took-out.Run.Queued)
	}
	return out, err
}

// callForPeer runs a step of another node's execution, in an arena of its own.
func (s steps) callForPeer(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
	v, err := s.versionOf(ctx, c.App, c.Version)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer s.ended(v)
	f := v.functions[c.Function]
	if f == nil {
		return engine.Outcome{}, outboard.Errorf(outboard.NotFound, "", "app %s has no function %s", c.App, c.Function)
	}
	arena, err := function.NewArena(v.arenaSize())
	if err != nil {
		return engine.Outcome{}, err
	}
	defer arena.Close()
	place, err := arena.Put(c.Body)
	if err != nil {
		return engine.Outcome{}, err
	}
	c.At, c.Body = &engine.Place{Offset: int64(place.Offset), Size: int64(place.Size)}, nil
	out, err := s.callIn(ctx, f, c, arena)
	if err != nil || out.At == nil {
		return out, err
	}
	b, err := arena.At(function.Place{Offset: int(out.At.Offset), Size: int(out.At.Size)})
	out.Body, out.At = bytes.Clone(b), nil
	return out, err
}

// callHere runs a step in this process, with the execution's arena in its window.
func (s steps) callHere(ctx context.Context, f *deployed, c engine.FunctionCall) (engine.Outcome, error) {
	arena, err := s.values.arena(c.Execution)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer arena.Close()
	return s.callIn(ctx, f, c, arena)
}

func (s steps) callIn(ctx context.Context, f *deployed, c engine.FunctionCall, arena *function.Arena) (engine.Outcome, error) {
	q := function.Request{Entry: c.Entry, Body: c.Body, Arena: arena, Meta: stepMeta(c), Resources: f}
	if q.Entry == "" {
		q.Entry = f.spec.Entry
	}
	if c.At != nil {
		q.Place = &function.Place{Offset: int(c.At.Offset), Size: int(c.At.Size)}
	}
	began := time.Now()
	p, err := f.run(ctx, q)
	out := engine.Outcome{Body: p.Body, Run: s.ran(p, began)}
	if p.Place != nil {
		out.At = &engine.Place{Offset: int64(p.Place.Offset), Size: int64(p.Place.Size)}
		err = errors.Join(err, inline(&out, arena))
	}
	s.gateway.Log(gateway.Record{
		App: c.App, Target: c.Function, Trigger: workflowTrigger, Execution: string(c.Execution), Step: c.Path,
		Begin: began, Took: time.Since(began), Err: err, Fuel: p.Cost.Fuel, Stdout: p.Stdout.Text, Stderr: p.Stderr.Text,
	})
	return out, asFault(err)
}

// inline takes a small result out of the arena: expressions may want to see it.
func inline(out *engine.Outcome, arena *function.Arena) error {
	if out.At.Size > engine.MaxInline {
		return nil
	}
	b, err := arena.At(function.Place{Offset: int(out.At.Offset), Size: int(out.At.Size)})
	out.Body, out.At = bytes.Clone(b), nil
	return err
}

// workflowTrigger is how logs name a call by a workflow.
const workflowTrigger gateway.Trigger = "workflow"

// ran says how a call went.
func (s steps) ran(p function.Response, began time.Time) engine.Run {
	r := engine.Run{
		Node: string(s.config.Node), Start: startName(p.Cost.Start), Began: began, Took: p.Cost.Ran,
		Pointer: p.Cost.Pointer, Copied: p.Cost.Copied, Fuel: p.Cost.Fuel,
	}
	if waited := time.Since(began) - p.Cost.Ran; waited > 0 {
		r.Queued = waited
	}
	for _, i := range p.Imports {
		r.Imports = append(r.Imports, engine.Import{Name: i.Name, Calls: i.Calls, Took: i.Time, Waited: i.Waited, Bytes: i.Pointer + i.Copied})
	}
	return r
}

func startName(s function.Start) string {
	if s == function.Clone {
		return "clone"
	}
	return "reset"
}

// stepMeta is what a step may ask about itself.
func stepMeta(c engine.FunctionCall) func(string) (string, bool) {
	return func(name string) (string, bool) {
		switch name {
		case "execution":
			return string(c.Execution), true
		case "step":
			return c.Path, true
		case "content-type":
			return c.Type, c.Type != ""
		}
		value, ok := c.Meta[name]
		return value, ok
	}
}

// asFault makes a function's own failure an error that a workflow can catch by its
// fields.
func asFault(err error) error {
	failed, own := errors.AsType[*function.FailedError](err)
	switch {
	case err == nil:
		return nil
	case own:
		return &dsl.Error{Type: dsl.ErrorRuntime, Status: 500, Title: "the function failed", Detail: failed.Text}
	case outboard.KindOf(err) == outboard.Exhausted:
		return &dsl.Error{Type: dsl.ErrorRuntime, Status: gateway.Status(err), Title: "a limit was reached", Detail: err.Error()}
	case errors.Is(err, function.ErrTrap):
		return &dsl.Error{Type: dsl.ErrorRuntime, Status: 500, Title: "the function ended badly", Detail: err.Error()}
	}
	return err
}

// Pure implements engine.Functions.
func (s steps) Pure(app string, version int, name string) bool {
	v, err := s.versionOf(context.Background(), app, version)
	if err != nil {
		return false
	}
	defer s.ended(v)
	f := v.functions[name]
	// One with a window may write into the value that it was handed, while that is saved.
	return f != nil && len(f.spec.Imports) == 0 && f.Window() == 0
}
