package calls

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard/fabric/balance"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/fabric/policy"
	"github.com/outboard-run/outboard/fabric/router"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// look is how often membership is looked at when nothing says that it changed:
// a node that has fallen silent is noticed by the passing of time.
const look = 500 * time.Millisecond

// keepUp brings the router up to date with the pool's table.
func (p *Plane) keepUp(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	version := 0
	for {
		offers, members := p.registry.Changed(), p.opts.Members.Changed()
		version = p.applyPolicies(version)
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

// applyPolicies puts the pool's policies in force when they are others than version.
func (p *Plane) applyPolicies(version int) int {
	current := p.registry.Policies().Current()
	if current == nil || current.Number == version {
		return version
	}
	set, err := p.Parse(current.Name, []byte(current.Text))
	if err != nil {
		// Whoever applied them could read them: a newer node, or with other descriptors.
		p.log.Error("this node can't read the pool's policies: the earlier ones stay in force", "version", current.Number, "error", err)
		return current.Number
	}
	p.table.Apply(set, time.Now())
	p.log.Info("policies are in force", "version", current.Number, "by", string(current.By))
	return current.Number
}

// Parse checks a text of policies against the services that the pool knows.
func (p *Plane) Parse(name string, text []byte) (*policy.Set, error) {
	return policy.Parse(name, text, descriptors{p.registry})
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
			})
		}
	}
	for name, list := range lists {
		if err := p.router.SetService(name, router.Service{Endpoints: list, Balance: p.balance()}); err != nil {
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

// balance is near before far, the less busy of two, and a pause for who fails.
func (p *Plane) balance() balance.Config {
	return balance.Config{
		Method:   balance.LeastRequests,
		Reports:  balance.Reports{Enabled: true},
		Locality: balance.Locality{Node: string(p.opts.Self)},
		Ejection: balance.Ejection{Consecutive: 5},
	}
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
