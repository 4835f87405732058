package tenant

import (
	"cmp"
	"context"
	"fmt"
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

// A planner decides where the steps of workflows run, from what earlier executions
// took. While it does not know, steps run where their execution is.
type planner struct {
	tenant   *Tenant
	links    links
	launches launches

	mu    sync.Mutex
	plans map[planKey]*plan
}

type planKey struct {
	app      string
	version  int
	workflow *dsl.Workflow
}

// A plan says where the steps of one workflow run.
type plan struct {
	made     time.Time
	making   bool
	graph    *graph
	nodes    []outboard.NodeID
	decision placement.Decision
	seen     int // executions that it was made from
}

const (
	// planFor is how long a plan is used before it is looked at again.
	planFor = 10 * time.Second
	// planFrom is how many of the latest executions a plan is made from, planNodes how many
	// nodes are looked at.
	planFrom  = 16
	planNodes = 8
)

// place returns the node for a step, "" for this one.
func (p *planner) place(c *engine.FunctionCall) outboard.NodeID {
	if c.Workflow == nil || len(p.tenant.members.others(p.tenant.config.Node)) == 0 {
		return ""
	}
	plan := p.current(planKey{c.App, c.Version, c.Workflow})
	if plan == nil {
		return ""
	}
	at := slices.Index(plan.graph.paths, taskOf(c.Path))
	if at < 0 {
		return ""
	}
	return plan.nodes[plan.decision.Node[at]]
}

// current is the plan for a workflow, nil while there is none. One that is old is made
// anew beside it.
func (p *planner) current(key planKey) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plans == nil {
		p.plans = map[planKey]*plan{}
	}
	have := p.plans[key]
	if have == nil {
		have = &plan{}
		p.plans[key] = have
	}
	if !have.making && time.Since(have.made) > planFor {
		have.making = true
		p.tenant.running.Go(func() { p.remake(key) })
	}
	if have.graph == nil {
		return nil
	}
	return have
}

func (p *planner) remake(key planKey) {
	made, err := p.make(p.tenant.life, key)
	if err != nil && p.tenant.life.Err() == nil {
		p.tenant.log.Debug("a workflow's steps are not placed", "app", key.app, "workflow", key.workflow.Name, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.plans[key].made, p.plans[key].making = time.Now(), false
		return
	}
	made.made = time.Now()
	p.plans[key] = made
}

// make decides about a workflow.
func (p *planner) make(ctx context.Context, key planKey) (*plan, error) {
	v, err := p.tenant.versionOf(ctx, key.app, key.version)
	if err != nil {
		return nil, err
	}
	defer p.tenant.ended(v)
	known, seen, err := p.histories(ctx, key.app, v.nameOf(key.workflow))
	if err != nil {
		return nil, err
	}
	made := &plan{graph: graphOf(key.workflow, known), seen: seen, nodes: p.nodes()}
	problem := placement.Problem{Steps: made.graph.steps, Link: p.links.between(made.nodes)}
	for _, node := range made.nodes {
		problem.Nodes = append(problem.Nodes, placement.Node{ID: node, Slots: runtime.NumCPU()})
	}
	made.decision, err = placement.Decide(problem)
	return made, err
}

// nodes are those that steps may go to, this one first.
func (p *planner) nodes() []outboard.NodeID {
	self := p.tenant.config.Node
	all := append([]outboard.NodeID{self}, p.tenant.members.others(self)...)
	return all[:min(len(all), planNodes)]
}

// histories are the medians of the latest executions, by the tasks' paths.
func (p *planner) histories(ctx context.Context, app, workflow string) (map[string]history, int, error) {
	list, err := p.tenant.engine.List(ctx, engine.Filter{App: app, Workflow: workflow, Limit: planFrom})
	if err != nil {
		return nil, 0, err
	}
	times, sizes, seen := map[string][]time.Duration{}, map[string][]outboard.Bytes{}, 0
	for i := range list {
		if list[i].Status != core.Completed {
			continue
		}
		e, err := p.tenant.engine.Get(ctx, list[i].ID)
		if err != nil {
			continue // it was purged just now
		}
		seen++
		for _, s := range e.Steps {
			path := taskOf(s.Path)
			times[path], sizes[path] = append(times[path], s.Run.Took), append(sizes[path], sizeOf(&s))
		}
	}
	known := make(map[string]history, len(times))
	for path := range times {
		known[path] = history{median(times[path]), median(sizes[path])}
	}
	return known, seen, nil
}

// sizeOf is how large a step's result is, 0 for what is small.
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

// why explains where an execution's steps ran.
func (p *planner) why(ctx context.Context, e *engine.Execution) []client.Reason {
	self := p.tenant.config.Node
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

// planOf is the plan for an execution's workflow, made now where there is none.
func (p *planner) planOf(ctx context.Context, e *engine.Execution) (*plan, error) {
	w, _, err := workflows{p.tenant}.Workflow(ctx, e.ID.App(), e.Version, e.Workflow)
	if err != nil {
		return nil, err
	}
	key := planKey{e.ID.App(), e.Version, w}
	if made := p.current(key); made != nil {
		return made, nil
	}
	return p.make(ctx, key)
}

// reasonOf is one step's reason in words.
func reasonOf(w placement.Why) string {
	parts := []string{fmt.Sprintf("it would run from %v to %v and waits for %s", w.Start, w.End, w.WaitsFor)}
	for _, o := range w.Others {
		parts = append(parts, fmt.Sprintf("%s: %s", o.Node, o.Reason))
	}
	return strings.Join(parts, "; ")
}
