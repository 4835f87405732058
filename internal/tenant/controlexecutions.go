package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// postExecution starts an execution.
func (t *Tenant) postExecution(r *http.Request) (client.Execution, error) {
	input, err := bodyOf(r)
	if err != nil {
		return client.Execution{}, err
	}
	if _, err := t.awaitCurrent(r.Context(), r.PathValue("app")); err != nil {
		return client.Execution{}, err
	}
	id, err := t.engine.Start(r.Context(), engine.StartRequest{
		App: r.PathValue("app"), Workflow: r.PathValue("workflow"), Name: r.URL.Query().Get("id"), Input: input,
		Type: r.Header.Get("Content-Type"),
	})
	if err != nil {
		return client.Execution{}, known(err)
	}
	if boolOf(r, "wait") {
		if _, err := t.engine.Wait(r.Context(), id); err != nil {
			return client.Execution{}, err
		}
	}
	return t.execution(r.Context(), id, false)
}

// known gives the engine's errors their kinds.
func known(err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return outboard.Errorf(outboard.NotFound, "", "%w", err)
	}
	return err
}

// knownOf says which execution there is not.
func knownOf(id engine.ID, err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return outboard.Errorf(outboard.NotFound, "", "there is no execution %s: `outboard executions` lists them", id)
	}
	return err
}

func idOf(r *http.Request) engine.ID {
	return engine.ID(r.PathValue("app") + "/" + r.PathValue("id"))
}

func (t *Tenant) getExecution(r *http.Request) (client.Execution, error) {
	return t.execution(r.Context(), idOf(r), boolOf(r, "why"))
}

func (t *Tenant) postCancel(r *http.Request) (client.Execution, error) {
	if err := t.engine.Cancel(r.Context(), idOf(r), "it was cancelled by `outboard executions cancel`"); err != nil {
		return client.Execution{}, knownOf(idOf(r), err)
	}
	e, err := t.execution(r.Context(), idOf(r), false)
	if err == nil && e.Node != t.config.Node {
		t.tellCancelled(r.Context(), e)
	}
	return e, err
}

// lookLimit is how long the node that has an execution may take to hear of its end.
const lookLimit = 2 * time.Second

// tellCancelled has the node that runs an execution stop what is under way. One that does
// not hear it finds the end in the log when it records the step.
func (t *Tenant) tellCancelled(ctx context.Context, e client.Execution) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if err := t.peers.look(ctx, e.Node, engine.ID(e.ID)); err != nil {
		t.log.Info("the node that runs an execution was not told that it was cancelled", "execution", e.ID, "peer", e.Node, "error", err)
	}
}

// execution tells all about one.
func (t *Tenant) execution(ctx context.Context, id engine.ID, why bool) (client.Execution, error) {
	e, err := t.engine.Get(ctx, id)
	if err != nil {
		return client.Execution{}, knownOf(id, err)
	}
	out := t.describeExecution(&e)
	if out.Input = e.Input; e.InputValue != nil {
		out.Input = reference(e.InputValue)
	}
	for i := range e.Steps {
		out.Steps = append(out.Steps, describeStep(&e.Steps[i]))
	}
	t.locate(ctx, &e, &out)
	if why {
		out.Why = t.planner.why(ctx, &e)
	}
	return out, nil
}

func (t *Tenant) describeExecution(e *engine.Execution) client.Execution {
	out := client.Execution{
		ID: string(e.ID), App: e.ID.App(), Workflow: e.Workflow, Version: e.Version, State: string(e.Status),
		Started: e.Started, Ended: e.Ended, Output: e.Output, Fault: fault(e.Error),
	}
	if e.OutputValue != nil {
		out.Output = reference(e.OutputValue)
	}
	for _, tenure := range e.Tenures {
		out.Nodes = append(out.Nodes, client.Tenure{Node: outboard.NodeID(tenure.Node), Since: tenure.Since, Reason: tenure.Reason})
		out.Node = outboard.NodeID(tenure.Node)
	}
	return out
}

// reference is how a large value is shown.
func reference(v any) json.RawMessage {
	text, err := json.Marshal(map[string]any{"$value": v})
	if err != nil {
		return nil // it has nothing that could not be written
	}
	return text
}

func fault(e *dsl.Error) *client.Fault {
	if e == nil {
		return nil
	}
	return &client.Fault{Type: e.Type, Status: e.Status, Title: e.Title, Detail: e.Detail, Instance: e.Instance}
}

func describeStep(s *engine.Step) client.Step {
	out := client.Step{
		Task: s.Task, Name: s.Name, Kind: s.Kind, Function: s.Function, Attempt: s.Attempt, Iteration: s.Round,
		State: string(s.Status), Node: outboard.NodeID(s.Run.Node), Ready: s.Ready, Started: s.Run.Began,
		Took: client.Duration(s.Run.Took), Start: s.Run.Start, Pointer: outboard.Bytes(s.Run.Pointer), Copied: outboard.Bytes(s.Run.Copied),
		Fuel: s.Run.Fuel, Fault: fault(s.Error),
	}
	for _, i := range s.Run.Imports {
		out.Imports = append(out.Imports, client.ImportUse{
			Name: i.Name, Calls: i.Calls, Took: client.Duration(i.Took), Waited: client.Duration(i.Waited), Bytes: outboard.Bytes(i.Bytes),
		})
	}
	return out
}

// getExecutions lists executions, newest first.
func (t *Tenant) getExecutions(r *http.Request) ([]client.Execution, error) {
	query := r.URL.Query()
	all, err := t.engine.List(r.Context(), engine.Filter{
		App: query.Get("app"), Workflow: query.Get("workflow"), Name: query.Get("id"),
		Status: core.Status(query.Get("state")), Limit: numberOf(r, "limit"),
	})
	if err != nil {
		return nil, err
	}
	out := make([]client.Execution, 0, len(all))
	for i := range all {
		out = append(out, t.describeExecution(&all[i]))
	}
	return out, nil
}

// getWorkflows lists the workflows with the counts of their executions.
func (t *Tenant) getWorkflows(r *http.Request) ([]client.Workflow, error) {
	all := map[string]*client.Workflow{}
	for _, v := range t.chosen(r.URL.Query().Get("app")) {
		for name, w := range v.workflows {
			all[v.spec.Name+"/"+name] = &client.Workflow{
				App: v.spec.Name, Name: name, Tenant: t.config.Tenant, File: v.digestOf(name), Steps: len(w.Functions()),
			}
		}
	}
	executions, err := t.engine.List(r.Context(), engine.Filter{App: r.URL.Query().Get("app"), Brief: true})
	if err != nil {
		return nil, err
	}
	for i := range executions {
		if w := all[executions[i].ID.App()+"/"+executions[i].Workflow]; w != nil {
			count(w, string(executions[i].Status))
		}
	}
	out := []client.Workflow{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[key])
	}
	slices.SortFunc(out, func(a, b client.Workflow) int { return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Name, b.Name)) })
	return out, nil
}

func count(w *client.Workflow, state string) {
	switch state {
	case client.StateCompleted:
		w.Completed++
	case client.StateFaulted:
		w.Faulted++
	case client.StateCancelled:
		w.Cancelled++
	default:
		w.Running++
	}
}
