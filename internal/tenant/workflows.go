package tenant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/planner"
)

// workflows provides the workflows of all versions: it implements engine.Workflows.
type workflows struct{ apps *deployments }

// Workflow implements engine.Workflows.
func (w workflows) Workflow(ctx context.Context, app string, number int, name string) (*dsl.Workflow, int, error) {
	v, err := w.apps.Acquire(ctx, app, number)
	if err != nil {
		return nil, 0, err
	}
	defer release(v)
	found := v.Workflows[name]
	if found == nil {
		return nil, 0, absentError(fmt.Sprintf("app %s has no workflow %q: it has %s", app, name, list(v.Workflows)))
	}
	return found, v.Number, nil
}

// Find implements engine.Workflows.
func (w workflows) Find(ctx context.Context, app string, number int, run *dsl.Run) (string, error) {
	v, err := w.apps.Acquire(ctx, app, number)
	if err != nil {
		return "", err
	}
	defer release(v)
	return findWorkflow(v, run)
}

// findWorkflow returns the name in the manifest of the workflow that a task runs.
func findWorkflow(v *version, run *dsl.Run) (string, error) {
	var there []string
	for _, name := range slices.Sorted(maps.Keys(v.Workflows)) {
		w := v.Workflows[name]
		if run.Matches(w) {
			return name, nil
		}
		there = append(there, w.Namespace+"/"+w.Name+" "+w.Version)
	}
	return "", absentError(fmt.Sprintf("the app has no workflow %s/%s %s: there are %s", run.Namespace, run.Name, run.Version, strings.Join(there, ", ")))
}

// absentError is engine.ErrNotFound, with a text that lists the names that exist.
type absentError string

func (e absentError) Error() string { return string(e) }

// Is reports that the error is engine.ErrNotFound.
func (absentError) Is(err error) bool { return err == engine.ErrNotFound }

// planned describes a workflow of a version to the planner.
func planned(v *version, w *dsl.Workflow) planner.Workflow {
	for name, have := range v.Workflows {
		if have == w {
			return planner.Workflow{Workflow: w, Name: name, Launch: v.Spec.Launch[name]}
		}
	}
	return planner.Workflow{Workflow: w}
}

// newPlanner joins a planner to the engine, the apps and the other nodes.
func (t *Tenant) newPlanner() *planner.Planner {
	return planner.New(planner.Options{
		Self: t.config.Node, History: engineHistory{t}, Others: t.members.Peers, Life: t.life, Go: t.running.Go, Logger: t.log,
		Workflow: func(ctx context.Context, app string, number int, w *dsl.Workflow) (planner.Workflow, error) {
			v, err := t.apps.Acquire(ctx, app, number)
			if err != nil {
				return planner.Workflow{}, err
			}
			defer release(v)
			return planned(v, w), nil
		},
		Named: func(ctx context.Context, app string, number int, name string) (*dsl.Workflow, error) {
			w, _, err := workflows{t.apps}.Workflow(ctx, app, number, name)
			return w, err
		},
		Warm: func(ctx context.Context, node outboard.NodeID, f planner.Target) error {
			if node == t.config.Node {
				return warm(ctx, t.apps, f)
			}
			return t.peers.Warm(ctx, node, f)
		},
		Cold: func(f planner.Target) bool {
			v, err := t.apps.Acquire(t.life, f.App, f.Version)
			if err != nil {
				return false
			}
			defer release(v)
			return v.Functions[f.Function] != nil && v.Functions[f.Function].Cold()
		},
	})
}

// engineHistory provides the executions of an engine that is opened after the planner: it
// implements planner.History.
type engineHistory struct{ tenant *Tenant }

// List implements planner.History.
func (h engineHistory) List(ctx context.Context, f engine.Filter) ([]engine.Execution, error) {
	return h.tenant.engine.List(ctx, f)
}

// Get implements planner.History.
func (h engineHistory) Get(ctx context.Context, id engine.ID) (engine.Execution, error) {
	return h.tenant.engine.Get(ctx, id)
}

// list returns the sorted keys of a map, "none" for none.
func list[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
