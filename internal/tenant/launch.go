package tenant

import (
	"context"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// launches has the instances of steps made before they are needed, at the times that
// the workflow's policy says. The zero value has launched nothing.
type launches struct {
	mu   sync.Mutex
	seen map[engine.ID]bool
}

// first reports whether this is the first that is heard of an execution.
func (l *launches) first(id engine.ID) bool {
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

// over forgets an execution that has ended here.
func (l *launches) over(id engine.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, id)
}

// lead is how much earlier than it is needed an instance is made: making it takes a
// fraction of a millisecond, and timers are late.
const lead = 10 * time.Millisecond

// launch begins the launches of an execution with its first call. Steps whose node has
// an instance already need none.
func (p *planner) launch(c *engine.FunctionCall, v *version) {
	policy := policyOf(v, v.nameOf(c.Workflow))
	if !p.launches.first(c.Execution) || policy == placement.Lazy {
		return // a step that is launched lazily makes its instance itself
	}
	made := p.current(planKey{c.App, c.Version, c.Workflow})
	if made == nil {
		return
	}
	at, err := placement.Launch(policy, made.graph.steps)
	if err != nil {
		return // the graph was checked when the plan was made
	}
	for i, name := range made.graph.calls {
		node := made.nodes[made.decision.Node[i]]
		if f := v.functions[name]; made.graph.paths[i] == taskOf(c.Path) || f == nil || node == p.tenant.config.Node && !f.Cold() {
			continue
		}
		p.tenant.running.Go(func() { p.warmAfter(at[i]-lead, node, target{c.App, v.number, name}) })
	}
}

// policyOf is how the steps of a workflow are launched.
func policyOf(v *version, workflow string) placement.Policy {
	policy, err := placement.ParsePolicy(v.spec.Launch[workflow])
	if err != nil {
		return placement.Nimble
	}
	return policy
}

// A target is a function of a version.
type target struct {
	App      string `json:"app"`
	Version  int    `json:"version"`
	Function string `json:"function"`
}

// warmAfter has a node make an instance, some time from now.
func (p *planner) warmAfter(wait time.Duration, node outboard.NodeID, f target) {
	ctx := p.tenant.life
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	var err error
	if node == p.tenant.config.Node {
		err = p.tenant.warm(ctx, f)
	} else {
		err = p.tenant.peers.warm(ctx, node, f)
	}
	if err != nil && ctx.Err() == nil {
		p.tenant.log.Debug("no instance was made ahead", "app", f.App, "function", f.Function, "on", node, "error", err)
	}
}

// warm makes an instance here.
func (t *Tenant) warm(ctx context.Context, f target) error {
	v, err := t.versionOf(ctx, f.App, f.Version)
	if err != nil {
		return err
	}
	defer t.ended(v)
	if d := v.functions[f.Function]; d != nil {
		return d.Warm()
	}
	return outboard.Errorf(outboard.NotFound, "", "app %s has no function %s", f.App, f.Function)
}

const (
	// trimEvery is how often instances that nobody needs are looked for. Those of a
	// function that had no call in between go.
	trimEvery = 5 * time.Minute
)

// trim gives the memory of idle instances back.
func (t *Tenant) trim(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for before := map[*deployed]uint64{}; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before = t.trimIdle(before)
	}
}

// trimIdle closes the instances of functions that made no calls since before, and
// returns how many all have made.
func (t *Tenant) trimIdle(before map[*deployed]uint64) map[*deployed]uint64 {
	now := map[*deployed]uint64{}
	for _, v := range *t.apps.current.Load() {
		for _, f := range v.functions {
			now[f] = f.meter.calls.Load()
			if calls, known := before[f]; known && calls == now[f] {
				f.Trim(0)
			}
		}
	}
	return now
}
