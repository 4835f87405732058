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
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// executionsAPI is the part of the local API that starts, cancels and lists executions.
type executionsAPI struct {
	tenant *Tenant
	apps   *deployments
	engine *engine.Engine
	self   outboard.NodeID
}

func (a *executionsAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/workflows", api.Answer(afterLoading(a.apps, a.getWorkflows)))
	mux.HandleFunc("GET /v1/executions", api.Answer(a.getExecutions))
	mux.HandleFunc("POST /v1/apps/{app}/workflows/{workflow}/executions", api.Answer(a.postExecution))
	mux.HandleFunc("GET /v1/apps/{app}/executions/{id}", api.Answer(a.getExecution))
	mux.HandleFunc("POST /v1/apps/{app}/executions/{id}/cancel", api.Answer(a.postCancel))
}

// postExecution starts an execution.
func (a *executionsAPI) postExecution(r *http.Request) (client.Execution, error) {
	input, err := bodyOf(r)
	if err != nil {
		return client.Execution{}, err
	}
	if _, err := a.apps.AwaitCurrent(r.Context(), r.PathValue("app")); err != nil {
		return client.Execution{}, err
	}
	id, err := a.engine.Start(r.Context(), engine.StartRequest{
		App: r.PathValue("app"), Workflow: r.PathValue("workflow"), Name: r.URL.Query().Get("id"), Input: input,
		Type: r.Header.Get("Content-Type"),
	})
	if err != nil {
		return client.Execution{}, known(err)
	}
	if boolOf(r, "wait") {
		if _, err := a.engine.Wait(r.Context(), id); err != nil {
			return client.Execution{}, err
		}
	}
	return a.execution(r.Context(), id, false)
}

// known adds its kind to an error of the engine.
func known(err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return outboard.Errorf(outboard.NotFound, "", "%w", err)
	}
	return err
}

// notFoundError returns an error that names the missing execution, if err is that there is none.
func notFoundError(id engine.ID, err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return outboard.Errorf(outboard.NotFound, "", "there is no execution %s: `outboard executions` lists them", id)
	}
	return err
}

func idOf(r *http.Request) engine.ID {
	return engine.ID(r.PathValue("app") + "/" + r.PathValue("id"))
}

func (a *executionsAPI) getExecution(r *http.Request) (client.Execution, error) {
	return a.execution(r.Context(), idOf(r), boolOf(r, "why"))
}

func (a *executionsAPI) postCancel(r *http.Request) (client.Execution, error) {
	if err := a.engine.Cancel(r.Context(), idOf(r), "it was cancelled by `outboard executions cancel`"); err != nil {
		return client.Execution{}, notFoundError(idOf(r), err)
	}
	e, err := a.execution(r.Context(), idOf(r), false)
	if err == nil && e.Node != a.self {
		a.notifyCancelled(r.Context(), e)
	}
	return e, err
}

// refreshTimeout is how long the node that runs an execution may take to read its end.
const refreshTimeout = 2 * time.Second

// notifyCancelled has the node that runs an execution stop the steps in progress. An unreachable
// node finds the end in the log when it records the step.
func (a *executionsAPI) notifyCancelled(ctx context.Context, e client.Execution) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	if err := a.tenant.peers.Refresh(ctx, e.Node, engine.ID(e.ID)); err != nil {
		a.tenant.log.Info("the node that runs an execution was not told that it was cancelled", "execution", e.ID, "peer", e.Node, "error", err)
	}
}

// execution returns an execution with its steps.
func (a *executionsAPI) execution(ctx context.Context, id engine.ID, why bool) (client.Execution, error) {
	e, err := a.engine.Get(ctx, id)
	if err != nil {
		return client.Execution{}, notFoundError(id, err)
	}
	out := a.describe(&e)
	if out.Input = e.Input; e.InputValue != nil {
		out.Input = reference(e.InputValue)
	}
	for i := range e.Steps {
		out.Steps = append(out.Steps, describeStep(&e.Steps[i]))
	}
	a.locate(ctx, &e, &out)
	if why {
		out.Why = a.tenant.planner.Why(ctx, &e)
	}
	return out, nil
}

func (a *executionsAPI) describe(e *engine.Execution) client.Execution {
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

// reference returns the JSON that stands for a large value.
func reference(v any) json.RawMessage {
	text, err := json.Marshal(map[string]any{"$value": v})
	if err != nil {
		return nil // v has no values that can't be encoded
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
		Task: s.Task, Name: s.Name, Kind: s.Kind, Function: cmp.Or(s.Function, s.Service), Attempt: s.Attempt, Iteration: s.Round,
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
func (a *executionsAPI) getExecutions(r *http.Request) ([]client.Execution, error) {
	query := r.URL.Query()
	all, err := a.engine.List(r.Context(), engine.Filter{
		App: query.Get("app"), Workflow: query.Get("workflow"), Name: query.Get("id"),
		Status: core.Status(query.Get("state")), Limit: numberOf(r, "limit"),
	})
	if err != nil {
		return nil, err
	}
	out := make([]client.Execution, 0, len(all))
	for i := range all {
		out = append(out, a.describe(&all[i]))
	}
	return out, nil
}

// getWorkflows lists the workflows with the counts of their executions.
func (a *executionsAPI) getWorkflows(r *http.Request) ([]client.Workflow, error) {
	all := map[string]*client.Workflow{}
	for _, v := range a.apps.Select(r.URL.Query().Get("app")) {
		for name, w := range v.Workflows {
			all[v.Spec.Name+"/"+name] = &client.Workflow{
				App: v.Spec.Name, Name: name, Tenant: a.tenant.config.Tenant, File: v.WorkflowDigest(name), Steps: len(w.Functions()),
			}
		}
	}
	executions, err := a.engine.List(r.Context(), engine.Filter{App: r.URL.Query().Get("app"), Brief: true})
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

// locate fills in the nodes of the steps in progress, which it requests from the execution's node.
// They stay empty if that node does not answer.
func (a *executionsAPI) locate(ctx context.Context, e *engine.Execution, out *client.Execution) {
	inProgress := func(s *engine.Step) bool { return s.Function != "" && s.Run.Node == "" && !s.Status.Over() }
	if e.Status.Over() || !slices.ContainsFunc(e.Steps, func(s engine.Step) bool { return inProgress(&s) }) {
		return
	}
	nodes, err := a.stepNodes(ctx, out.Node, e.ID)
	if err != nil {
		a.tenant.log.Info("the node that runs an execution does not report where its steps run", "execution", e.ID, "peer", out.Node, "error", err)
	}
	for i := range e.Steps {
		if s := &e.Steps[i]; inProgress(s) {
			out.Steps[i].Node = nodes[s.Path]
		}
	}
}

// locateTimeout is how long the node that runs an execution may take to report where its steps
// run.
const locateTimeout = time.Second

func (a *executionsAPI) stepNodes(ctx context.Context, node outboard.NodeID, id engine.ID) (map[string]outboard.NodeID, error) {
	if node == a.self {
		return a.tenant.steps.nodes.of(id), nil
	}
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	return a.tenant.peers.LocateSteps(ctx, node, id)
}
