package calls

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/router"
	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// membershipInterval is how often the membership is read when no change is reported: only the
// passing of time shows that a node has fallen silent.
const membershipInterval = 500 * time.Millisecond

// routes keeps the router's services in line with the pool's table.
type routes struct {
	registry   *services.Registry
	members    services.Members
	self       outboard.NodeID
	router     *router.Router
	transports *transports
	policies   *policies
	learner    *learner
	log        *slog.Logger

	mu    sync.Mutex
	names map[string]bool // the services that the router has
}

func newRoutes(opts Options, r *router.Router, t *transports, p *policies) *routes {
	return &routes{
		registry: opts.Registry, members: opts.Members, self: opts.Self, router: r, transports: t, policies: p,
		learner: newLearner(opts, t.life, t), log: opts.Logger,
		names: map[string]bool{},
	}
}

// keepInSync applies changes of the pool's table and policies until ctx ends.
func (r *routes) keepInSync(ctx context.Context) {
	tick := time.NewTicker(membershipInterval)
	defer tick.Stop()
	for {
		offers, members := r.registry.Changed(), r.members.Changed()
		r.policies.table.SetNodes(len(r.members.Nodes()))
		r.policies.apply()
		r.sync()
		r.learner.sync()
		select {
		case <-ctx.Done():
			return
		case <-offers:
		case <-members:
		case <-tick.C:
		}
	}
}

// sync updates the router's services from the pool's table.
func (r *routes) sync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transports.update(func(resolve func(services.Endpoint) call.Transport) {
		lists := r.endpointLists(resolve)
		for name, list := range lists {
			err := r.router.SetService(name, router.Service{Endpoints: list, Balance: r.policies.balanceOf(name, r.self)})
			if err != nil {
				r.log.Error("service is not routed", "service", name, "error", err)
			}
		}
		for name := range r.names {
			if lists[name] == nil {
				r.router.RemoveService(name)
			}
		}
		clear(r.names)
		for name := range lists {
			r.names[name] = true
		}
	})
}

// endpointLists returns the endpoints of each service. A described service without endpoints keeps
// an empty list: its programs may come back.
func (r *routes) endpointLists(resolve func(services.Endpoint) call.Transport) map[string][]router.Endpoint {
	lists := make(map[string][]router.Endpoint)
	for _, e := range r.registry.Endpoints() {
		t := resolve(e)
		if t == nil {
			continue
		}
		_, direct := t.(*shared.Conn)
		for _, name := range e.Services {
			if !offeredBy(name, e.Node) {
				continue
			}
			lists[name] = append(lists[name], router.Endpoint{
				Endpoint:        balance.Endpoint{ID: e.ID, Node: string(e.Node), Weight: e.Weight},
				Transport:       t,
				Forwards:        !direct,
				ReleasesContext: true, // both shared memory and streams write the head when a call begins
			})
		}
	}
	for _, name := range r.registry.Described() {
		if lists[name] == nil {
			lists[name] = []router.Endpoint{}
		}
	}
	return lists
}
