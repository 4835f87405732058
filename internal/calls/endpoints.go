package calls

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/fabric/router"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// look is how often membership is looked at when nothing says that it changed:
// a node that has fallen silent is noticed by the passing of time.
const look = 500 * time.Millisecond

// keepUp brings the router up to date with the pool's table.
func (p *Plane) keepUp(ctx context.Context, now understood) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		offers, members := p.registry.Changed(), p.opts.Members.Changed()
		now = p.applyPolicies(now)
		p.follow()
		select {
		case <-ctx.Done():
			return
		case <-offers:
		case <-members:
		case <-tick.C:
		}
	}
}

// understood is a version of the policies, and what was known of the services when
// it was read: expressions may be on fields that only later become known.
type understood struct {
	version      int
	descriptions uint64
}

// applyPolicies puts the pool's policies in force when they, or what they are about,
// are other than before.
func (p *Plane) applyPolicies(before understood) understood {
	current := p.registry.Policies().Current()
	if current == nil {
		return before
	}
	now := understood{current.Number, p.registry.Descriptions()}
	if now == before {
		return before
	}
	set, found, err := p.read(current.Name, []byte(current.Text))
	if err != nil {
		// Whoever applied them could read them: a newer node, or with other descriptors.
		p.log.Error("this node can't read the pool's policies: the earlier ones stay in force", "version", current.Number, "error", err)
		return now
	}
	p.mu.Lock()
	p.rules = found
	p.mu.Unlock()
	p.table.Apply(set, time.Now())
	if now.version != before.version {
		p.log.Info("policies are in force", "version", current.Number, "by", string(current.By))
	}
	return now
}

// Parse checks a text of policies against the services that the pool knows.
func (p *Plane) Parse(name string, text []byte) (*policy.Set, error) {
	set, _, err := p.read(name, text)
	return set, err
}

// read understands a file: policies, and rules of balancing.
func (p *Plane) read(name string, text []byte) (*policy.Set, balance.Rules, error) {
	text, found, err := balance.SplitRules(name, text)
	if err != nil {
		return nil, nil, err
	}
	set, err := policy.ParseOptions(name, text, policy.Options{Descriptors: descriptors{p.registry}, Modules: &p.modules})
	return set, found, err
}

// follow makes the router's services those of the pool's table.
func (p *Plane) follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	lists := make(map[string][]router.Endpoint)
	used := make(map[call.Transport]bool)
	for _, e := range p.registry.Endpoints() {
		t := p.transport(e)
		if t == nil {
			continue
		}
		used[t] = true
		for _, name := range e.Services {
			lists[name] = append(lists[name], router.Endpoint{
				Endpoint:  balance.Endpoint{ID: e.ID, Node: string(e.Node), Weight: e.Weight},
				Transport: t,
				Forgets:   true, // both shared memory and streams write the head when a call begins
			})
		}
	}
	for _, name := range p.registry.Described() {
		if lists[name] == nil {
			lists[name] = []router.Endpoint{} // whoever served it may come back
		}
	}
	for name, list := range lists {
		if err := p.router.SetService(name, router.Service{Endpoints: list, Balance: p.rules.For(name, string(p.opts.Self))}); err != nil {
			p.log.Error("service is not routed", "service", name, "error", err)
		}
	}
	for name := range p.names {
		if lists[name] == nil {
			p.router.RemoveService(name)
		}
	}
	clear(p.names)
	for _, name := range slices.Collect(maps.Keys(lists)) {
		p.names[name] = true
	}
	p.release(used)
}

// transport is the way to an endpoint, nil when there is none now. The mutex is held.
func (p *Plane) transport(e services.Endpoint) call.Transport {
	switch {
	case e.Node != p.opts.Self:
		return p.peer(e)
	case e.Address != "":
		return p.way(e)
	}
	if g := p.local[e.ID]; g != nil {
		return g.conn
	}
	return p.beside(e)
}
