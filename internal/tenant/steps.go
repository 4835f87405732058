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
	"github.com/outboard-run/outboard/internal/quota"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// steps runs the functions of executions: it implements engine.Functions.
type steps struct {
	tenant *Tenant
	nodes  stepNodes
}

var _ engine.Functions = (*steps)(nil)

// Call implements engine.Functions.
func (s *steps) Call(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
	t := s.tenant
	if c.Node == "" {
		c.Node = string(t.planner.ChooseNode(&c))
	}
	defer s.nodes.add(c.Execution, c.Path, cmp.Or(outboard.NodeID(c.Node), t.config.Node))()
	v, err := t.apps.Acquire(ctx, c.App, c.Version)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer release(v)
	if c.Workflow != nil {
		t.planner.Launch(&c, planned(v, c.Workflow))
	}
	if c.Node != "" && c.Node != string(t.config.Node) {
		return s.callRemote(ctx, c)
	}
	f := v.Functions[c.Function]
	if f == nil {
		return engine.Outcome{}, outboard.Errorf(outboard.NotFound, "", "app %s has no function %s", c.App, c.Function)
	}
	return s.callLocal(ctx, f, c)
}

// callRemote has another node run a step. The step's request is copied to that node.
func (s *steps) callRemote(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
	if c.At != nil {
		body, err := s.tenant.values.slice(c.Execution, *c.At)
		if err != nil {
			return engine.Outcome{}, err
		}
		c.Body = body
	}
	node, began := outboard.NodeID(c.Node), time.Now()
	out, err := s.tenant.peers.RunStep(ctx, node, c)
	if err == nil {
		s.tenant.planner.Links.Record(node, outboard.Bytes(len(c.Body)+len(out.Body)), time.Since(began)-out.Run.Took-out.Run.Queued)
	}
	return out, err
}

// callForPeer runs a step of another node's execution, in an arena of its own.
func (s *steps) callForPeer(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
	v, err := s.tenant.apps.Acquire(ctx, c.App, c.Version)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer release(v)
	f := v.Functions[c.Function]
	if f == nil {
		return engine.Outcome{}, outboard.Errorf(outboard.NotFound, "", "app %s has no function %s", c.App, c.Function)
	}
	arena, err := function.NewArena(v.ArenaSize())
	if err != nil {
		return engine.Outcome{}, err
	}
	defer arena.Close()
	extent, err := arena.Put(c.Body)
	if err != nil {
		return engine.Outcome{}, err
	}
	c.At, c.Body = &engine.Extent{Offset: int64(extent.Offset), Size: int64(extent.Size)}, nil
	out, err := s.callIn(ctx, f, c, arena)
	if err != nil || out.At == nil {
		return out, err
	}
	b, err := arena.Slice(function.Extent{Offset: int(out.At.Offset), Size: int(out.At.Size)})
	out.Body, out.At = bytes.Clone(b), nil
	return out, err
}

// callLocal runs a step in this process, with the execution's arena in its window.
func (s *steps) callLocal(ctx context.Context, f *deployed, c engine.FunctionCall) (engine.Outcome, error) {
	arena, err := s.tenant.values.arena(c.Execution)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer arena.Close()
	return s.callIn(ctx, f, c, arena)
}

func (s *steps) callIn(ctx context.Context, f *deployed, c engine.FunctionCall, arena *function.Arena) (engine.Outcome, error) {
	q := function.Request{Entry: c.Entry, Body: c.Body, Arena: arena, Bound: s.tenant.account.Budget(quota.Arenas), Meta: stepMeta(c), Resources: f}
	if q.Entry == "" {
		q.Entry = f.spec.Entry
	}
	if c.At != nil {
		q.Place = &function.Extent{Offset: int(c.At.Offset), Size: int(c.At.Size)}
	}
	began := time.Now()
	p, err := f.run(ctx, q)
	out := engine.Outcome{Body: p.Body, Run: s.runOf(p, began)}
	if p.Place != nil {
		out.At = &engine.Extent{Offset: int64(p.Place.Offset), Size: int64(p.Place.Size)}
		err = errors.Join(err, inlineSmall(&out, arena))
	}
	s.tenant.gateway.Log(gateway.Record{
		App: c.App, Target: c.Function, Trigger: workflowTrigger, Execution: string(c.Execution), Step: c.Path,
		Begin: began, Took: time.Since(began), Err: err, Fuel: p.Cost.Fuel, Stdout: p.Stdout.Text, Stderr: p.Stderr.Text,
	})
	return out, asFault(err)
}

// inlineSmall copies a small result out of the arena, for expressions that read it.
func inlineSmall(out *engine.Outcome, arena *function.Arena) error {
	if out.At.Size > engine.MaxInline {
		return nil
	}
	b, err := arena.Slice(function.Extent{Offset: int(out.At.Offset), Size: int(out.At.Size)})
	out.Body, out.At = bytes.Clone(b), nil
	return err
}

// workflowTrigger is the trigger, in logs, of a call by a workflow.
const workflowTrigger gateway.Trigger = "workflow"

// runOf returns the record of a call for its step.
func (s *steps) runOf(p function.Response, began time.Time) engine.Run {
	r := engine.Run{
		Node: string(s.tenant.config.Node), Start: startName(p.Cost.Start), Began: began, Took: p.Cost.Ran,
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

// stepMeta returns the metadata that a step can read.
func stepMeta(c engine.FunctionCall) func(string) (string, bool) {
	return func(name string) (string, bool) {
		switch name {
		case "execution":
			return string(c.Execution), true
		case "step":
			return c.Path, true
		case "step.key":
			return c.Key(), true
		case "content-type":
			return c.Type, c.Type != ""
		}
		value, ok := c.Meta[name]
		return value, ok
	}
}

// asFault converts a function's own failure to an error that a workflow can catch by its fields.
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
func (s *steps) Pure(app string, version int, name string) bool {
	v, err := s.tenant.apps.Acquire(context.Background(), app, version)
	if err != nil {
		return false
	}
	defer release(v)
	f := v.Functions[name]
	// A function with a window may write into its request while the request is being saved.
	return f != nil && len(f.spec.Imports) == 0 && f.Window() == 0
}
