package tenant

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/appdevice"
	"github.com/outboard-run/outboard/internal/app"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/function/resources"
	"github.com/outboard-run/outboard/internal/quota"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// planes builds the parts of versions: it implements app.Planes.
type planes struct{ tenant *Tenant }

var _ app.Planes[*deployed, *dsl.Workflow] = planes{}

// appResources are the resources that the functions of all versions of an app share on this node.
type appResources struct {
	*resources.App
	devices  *appdevice.Leases
	outgoing *outgoingClients
}

// Close implements app.Resources.
func (r *appResources) Close() {
	r.devices.Close()
	r.outgoing.close()
	r.App.Close()
}

// NewResources implements app.Planes.
func (p planes) NewResources(name string) app.Resources {
	t := p.tenant
	return &appResources{
		App: resources.New(resources.Options{
			State: t.state, Tenant: t.config.Tenant, App: name, Life: t.life, Go: t.running.Go, Logger: t.log,
			Arenas: t.account.Budget(quota.Arenas), Buckets: t.account.Budget(quota.Buckets),
		}),
		devices: appdevice.New(appdevice.Options{
			App: name, Socket: t.config.DevicesSocket, Key: t.config.DevicesKey, Life: t.life, Go: t.running.Go,
		}),
		outgoing: &outgoingClients{egress: t.egress, app: name},
	}
}

// DeployFunction implements app.Planes.
func (p planes) DeployFunction(ctx context.Context, v *version, s app.Source) (*deployed, error) {
	spec := v.Spec.Functions[s.Name]
	exports, err := exportedFunctions(s.Content)
	if err == nil && (spec.Entry != manifest.DefaultEntry || len(v.Spec.Workflows) == 0) { // workflows may name other entries
		err = checkEntry(spec.Entry, exports)
	}
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "deploy "+v.Spec.Name+"/"+s.Name, "%w", err)
	}
	f, err := p.tenant.runtime.Deploy(ctx, s.Content, settings(v.Spec.Name, s.Name, spec))
	if err != nil {
		return nil, err
	}
	d := &deployed{
		Function: f, tenant: p.tenant, version: v, name: s.Name, module: s.Digest, size: len(s.Content), spec: spec,
		http:      spec.HTTP || slices.Contains(exports, httpExport),
		resources: v.Resources.(*appResources), //nolint:errcheck // NewResources returned it
		streams:   f.Streams(),
		outgoing:  importedHosts(v.Spec, spec),
		imports:   make(map[string]manifest.Import, len(spec.Imports)),
	}
	for _, i := range spec.Imports {
		d.imports[i.String()] = i
	}
	return d, nil
}

// settings returns a function's settings from its manifest.
func settings(app, name string, spec manifest.Function) function.Settings {
	l := spec.Limits
	s := function.Settings{
		Name: app + "/" + name,
		Limits: function.Limits{
			Memory: l.Memory, Deadline: l.Deadline, Fuel: l.Fuel, Concurrency: l.Concurrency, Queue: l.Queue,
			Response: l.Response, Output: l.Output,
		},
		Window: l.Window,
		Args:   append([]string{name}, spec.Args...),
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Env)) {
		s.Env = append(s.Env, function.Variable{Name: key, Value: spec.Env[key]})
	}
	return s
}

// ParseWorkflow implements app.Planes.
func (planes) ParseWorkflow(v *version, s app.Source, unknown func(string) string) (*dsl.Workflow, []manifest.Problem) {
	w, err := dsl.ParseBy(workflowRules(v.Spec, unknown), s.File, s.Content)
	if err != nil {
		return nil, workflowProblems(s.File, err)
	}
	return w, nil
}

// CheckWorkflows implements app.Planes.
func (planes) CheckWorkflows(v *version) []manifest.Problem {
	var problems []manifest.Problem
	for _, name := range slices.Sorted(maps.Keys(v.Workflows)) {
		for _, run := range v.Workflows[name].Runs() {
			if _, err := findWorkflow(v, run); err != nil {
				problems = append(problems, manifest.Problem{File: v.Spec.Workflows[name], Line: run.Line, Column: 1, Text: err.Error()})
			}
		}
	}
	return problems
}

// workflowProblems returns the problems of a workflow's file.
func workflowProblems(file string, err error) []manifest.Problem {
	known, ok := errors.AsType[dsl.Problems](err)
	if !ok {
		return []manifest.Problem{{File: file, Text: err.Error()}}
	}
	var all []manifest.Problem
	for _, p := range known {
		all = append(all, manifest.Problem{File: p.File, Line: p.Line, Column: max(p.Column, 1), Text: p.Text})
	}
	return all
}
