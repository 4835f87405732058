package planner

import (
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// launches is the set of executions for which instances are being created ahead. The zero value is
// empty.
type launches struct {
	mu   sync.Mutex
	seen map[engine.ID]bool
}

// markFirst reports whether it is called for the first time for an execution.
func (l *launches) markFirst(id engine.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[id] {
		return false
	}
	if l.seen == nil {
		l.seen = map[engine.ID]bool{}
	}
	l.seen[id] = true
	return true
}

// forget drops an execution that has ended on this node.
func (l *launches) forget(id engine.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, id)
}

// lead is how long before its use an instance is created: creating it takes a fraction of a
// millisecond, and timers are late.
const lead = 10 * time.Millisecond

// Launch schedules, at the first call of an execution, the creation of the instances of its later
// steps, at the times of the workflow's launch policy.
func (p *Planner) Launch(c *engine.FunctionCall, w Workflow) {
	policy := policyOf(w)
	if !p.launches.markFirst(c.Execution) || policy == placement.Lazy {
		return // with the lazy policy a step creates its instance itself
	}
	made := p.current(planKey{c.App, c.Version, c.Workflow})
	if made == nil {
		return
	}
	times, err := placement.Launch(policy, made.graph.steps)
	if err != nil {
		return // the graph was checked when the plan was made
	}
	for i, name := range made.graph.calls {
		node, f := made.nodes[made.decision.Node[i]], Target{c.App, c.Version, name}
		if made.graph.paths[i] == taskPath(c.Path) || node == p.opts.Self && !p.opts.Cold(f) {
			continue
		}
		p.opts.Go(func() { p.warmAfter(times[i]-lead, node, f) })
	}
}

// policyOf returns a workflow's launch policy.
func policyOf(w Workflow) placement.Policy {
	policy, err := placement.ParsePolicy(w.Launch)
	if err != nil {
		return placement.Nimble
	}
	return policy
}

// warmAfter makes a node create an instance after a wait.
func (p *Planner) warmAfter(wait time.Duration, node outboard.NodeID, f Target) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.opts.Life.Done():
		return
	case <-timer.C:
	}
	if err := p.opts.Warm(p.opts.Life, node, f); err != nil && p.opts.Life.Err() == nil {
		p.opts.Logger.Debug("no instance was created ahead", "app", f.App, "function", f.Function, "on", node, "error", err)
	}
}
