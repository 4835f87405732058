// Package planner decides where the steps of workflows run and when their instances are created,
// from the records of earlier executions.
package planner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// History lists and describes the executions that ended.
type History interface {
	List(ctx context.Context, f engine.Filter) ([]engine.Execution, error)
	Get(ctx context.Context, id engine.ID) (engine.Execution, error)
}

// Workflow is a workflow of a version of an app.
type Workflow struct {
	*dsl.Workflow
	// Name is the name in the manifest, and Launch the launch policy that the manifest names.
	Name, Launch string
}

// Target is a function of a version.
type Target struct {
	App      string
	Version  int
	Function string
}

// Options of a Planner.
type Options struct {
	Self    outboard.NodeID
	History History
	// Others are the nodes of the pool but this one.
	Others func() []outboard.NodeID
	// Workflow returns w, a workflow of an app's version, with its name and policy, and Named
	// returns a workflow by its name.
	Workflow func(ctx context.Context, app string, version int, w *dsl.Workflow) (Workflow, error)
	Named    func(ctx context.Context, app string, version int, name string) (*dsl.Workflow, error)
	// Warm creates an instance on a node, and Cold reports whether a function has none here.
	Warm func(ctx context.Context, node outboard.NodeID, t Target) error
	Cold func(t Target) bool
	// Life bounds the work in the background, and Go runs a function for which the process waits
	// before it ends.
	Life   context.Context //nolint:containedctx // plans outlive the calls that need them
	Go     func(func())
	Logger *slog.Logger
}

// Planner decides where the steps of workflows run. While a workflow has no plan its steps
// run where their execution is. All methods may be called by several goroutines.
type Planner struct {
	opts     Options
	Links    Links
	launches launches

	mu    sync.Mutex
	plans map[planKey]*plan
}

// New returns a Planner without plans.
func New(o Options) *Planner { return &Planner{opts: o, plans: map[planKey]*plan{}} }

// Forget drops the state of an execution that no longer runs on this node.
func (p *Planner) Forget(id engine.ID) { p.launches.forget(id) }

type planKey struct {
	app      string
	version  int
	workflow *dsl.Workflow
}

// plan says where the steps of one workflow run.
type plan struct {
	made     time.Time // zero: it was never made
	used     time.Time
	making   bool
	graph    *graph
	nodes    []outboard.NodeID
	decision placement.Decision
	seen     int // executions from which it was made
}

const (
	// planLifetime is how long a plan is used before a new one is made beside it, and planRetention
	// how long one that is not used is kept.
	planLifetime  = 10 * time.Second
	planRetention = 10 * time.Minute
	// maxHistory bounds the latest executions from which a plan is made, maxNodes the nodes that it
	// considers.
	maxHistory = 16
	maxNodes   = 8
)

// ChooseNode returns the node for a step, "" for this one.
func (p *Planner) ChooseNode(c *engine.FunctionCall) outboard.NodeID {
	if c.Workflow == nil || len(p.opts.Others()) == 0 {
		return ""
	}
	plan := p.current(planKey{c.App, c.Version, c.Workflow})
	if plan == nil {
		return ""
	}
	i := slices.Index(plan.graph.paths, taskPath(c.Path))
	if i < 0 {
		return ""
	}
	return plan.nodes[plan.decision.Node[i]]
}

// current returns the plan for a workflow, nil while there is none. It remakes an old plan in the
// background.
func (p *Planner) current(key planKey) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.plans[key]
	if have == nil {
		p.dropUnused()
		have = &plan{}
		p.plans[key] = have
	}
	have.used = time.Now()
	if !have.making && time.Since(have.made) > planLifetime {
		have.making = true
		p.opts.Go(func() { p.remake(key) })
	}
	if have.graph == nil {
		return nil
	}
	return have
}

// dropUnused drops the plans of workflows that do not run any more, such as those of versions that
// were replaced. The caller holds the lock.
func (p *Planner) dropUnused() {
	maps.DeleteFunc(p.plans, func(_ planKey, have *plan) bool {
		return !have.making && time.Since(have.used) > planRetention
	})
}

func (p *Planner) remake(key planKey) {
	made, err := p.buildPlan(p.opts.Life, key)
	if err != nil && p.opts.Life.Err() == nil {
		p.opts.Logger.Debug("a workflow's steps are not placed", "app", key.app, "workflow", key.workflow.Name, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.plans[key].made, p.plans[key].making = time.Now(), false
		return
	}
	made.made, made.used = time.Now(), p.plans[key].used
	p.plans[key] = made
}

// buildPlan builds the plan for a workflow.
func (p *Planner) buildPlan(ctx context.Context, key planKey) (*plan, error) {
	w, err := p.opts.Workflow(ctx, key.app, key.version, key.workflow)
	if err != nil {
		return nil, err
	}
	if graphOf(key.workflow, nil).tooLarge {
		return nil, outboard.Errorf(outboard.Exhausted, "place a workflow", "it has more than %d calls, or more than %d results that its calls take", maxSteps, maxInputs)
	}
	known, seen, err := p.histories(ctx, key.app, w.Name)
	if err != nil {
		return nil, err
	}
	made := &plan{graph: graphOf(key.workflow, known), seen: seen, nodes: p.nodes()}
	problem := placement.Problem{Steps: made.graph.steps, Link: p.Links.between(made.nodes)}
	for _, node := range made.nodes {
		problem.Nodes = append(problem.Nodes, placement.Node{ID: node, Slots: runtime.NumCPU()})
	}
	made.decision, err = placement.Decide(problem)
	return made, err
}

// nodes returns the nodes on which steps may run, this one first.
func (p *Planner) nodes() []outboard.NodeID {
	all := append([]outboard.NodeID{p.opts.Self}, p.opts.Others()...)
	return all[:min(len(all), maxNodes)]
}

// histories returns the medians of the latest executions, by the tasks' paths.
func (p *Planner) histories(ctx context.Context, app, workflow string) (map[string]history, int, error) {
	list, err := p.opts.History.List(ctx, engine.Filter{App: app, Workflow: workflow, Limit: maxHistory})
	if err != nil {
		return nil, 0, err
	}
	times, sizes, seen := map[string][]time.Duration{}, map[string][]outboard.Bytes{}, 0
	for i := range list {
		if list[i].Status != core.Completed {
			continue
		}
		e, err := p.opts.History.Get(ctx, list[i].ID)
		if err != nil {
			continue // it was purged meanwhile
		}
		seen++
		for _, s := range e.Steps {
			path := taskPath(s.Path)
			times[path], sizes[path] = append(times[path], s.Run.Took), append(sizes[path], sizeOf(&s))
		}
	}
	known := make(map[string]history, len(times))
	for path := range times {
		known[path] = history{median(times[path]), median(sizes[path])}
	}
	return known, seen, nil
}

// sizeOf returns the size of a step's result, 0 for a small one.
func sizeOf(s *engine.Step) outboard.Bytes {
	if s.Value == nil {
		return 0
	}
	return outboard.Bytes(s.Value.Size)
}

func median[T cmp.Ordered](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// Why explains where an execution's steps ran.
func (p *Planner) Why(ctx context.Context, e *engine.Execution) []client.Reason {
	self := p.opts.Self
	made, err := p.planOf(ctx, e)
	if err != nil {
		return []client.Reason{{Node: self, Text: "the steps ran where the execution was: " + err.Error()}}
	}
	var all []client.Reason
	if len(made.nodes) == 1 {
		all = append(all, client.Reason{Steps: made.graph.paths, Node: self, Text: "there is no other node: all steps share one arena"})
	} else {
		all = append(all, client.Reason{Steps: made.graph.paths, Text: fmt.Sprintf(
			"from %d earlier executions: %v on the chosen nodes with %v crossing, %v with all steps on one",
			made.seen, made.decision.Completion, made.decision.Crossing, made.decision.Together.Completion)})
	}
	for _, w := range made.decision.Why {
		all = append(all, client.Reason{Steps: []string{w.Step}, Node: w.Node, Text: reasonOf(w)})
	}
	return all
}

// planOf returns the plan for an execution's workflow, made now if there is none.
func (p *Planner) planOf(ctx context.Context, e *engine.Execution) (*plan, error) {
	w, err := p.opts.Named(ctx, e.ID.App(), e.Version, e.Workflow)
	if err != nil {
		return nil, err
	}
	key := planKey{e.ID.App(), e.Version, w}
	if made := p.current(key); made != nil {
		return made, nil
	}
	return p.buildPlan(ctx, key)
}

// reasonOf returns one step's reason in words.
func reasonOf(w placement.Why) string {
	parts := []string{fmt.Sprintf("it would run from %v to %v and waits for %s", w.Start, w.End, w.WaitsFor)}
	for _, o := range w.Others {
		parts = append(parts, fmt.Sprintf("%s: %s", o.Node, o.Reason))
	}
	return strings.Join(parts, "; ")
}

// Ready reports whether there is a plan for a workflow.
func (p *Planner) Ready(app string, version int, w *dsl.Workflow) bool {
	return p.current(planKey{app, version, w}) != nil
}
