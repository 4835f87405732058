// Package services keeps, in the pool's table, the services that the nodes' programs offer, and the
// policies of calls.
//
// The table has three kinds of keys for them:
//   - `endpoints/NODE` has all endpoints of one node. That node alone writes it, when they change.
//     They are valid while the node is present with the boot that it wrote.
//   - `services/NODE/SERVICE` has a service's descriptors as the programs of that node described
//     them. Each node uses the descriptors of its own programs if there are any, and otherwise the
//     newest ones.
//   - `policies` has the policies' text with its earlier versions, by compare-and-swap.
package services

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// Keys of the table.
const (
	endpointsPrefix = "endpoints/"
	servicesPrefix  = "services/"
	policiesKey     = "policies"
)

// An Endpoint is a program that serves, or a gRPC server that was added to a node.
type Endpoint struct {
	// ID names it in the pool: "NODE/NUMBER" for a program, "NODE/ADDRESS" for a server.
	ID   string          `json:"id"`
	Node outboard.NodeID `json:"node"`
	// Services are the full names of the services that it serves.
	Services []string `json:"services"`
	// Address is where the node reaches a gRPC server, "HOST:PORT"; empty for a
	// program that is connected to the node.
	Address string    `json:"address,omitempty"`
	Program string    `json:"program,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Weight  int       `json:"weight,omitempty"`
	Started time.Time `json:"started"`
	// Process is the number of the process of its node to which it is connected, 0 where that does
	// not matter.
	Process int `json:"process,omitempty"`
}

// Members reports which nodes are in the pool.
type Members interface {
	Node(id outboard.NodeID) (outboard.Node, bool)
	Nodes() []outboard.Node
	Changed() <-chan struct{}
}

// Options of a Registry.
type Options struct {
	State   *state.State
	Members Members
	// Self and Boot are this node's name and boot, as in its record in the pool.
	Self outboard.NodeID
	Boot string
	// Reader means that another process writes this node's endpoints.
	Reader bool
	// Logger logs unreadable records. The default discards.
	Logger *slog.Logger
}

// A Registry is a node's view of the services, and publishes the node's own endpoints.
type Registry struct {
	opts Options

	write  sync.Mutex // orders the writes of this node's endpoints; before view's lock
	own    map[string]Endpoint
	repeat repeater // under write

	view         *state.Follower // its lock guards the fields below
	endpoints    map[outboard.NodeID]announcement
	descriptors  map[string]map[outboard.NodeID]described  // by service and node
	resolved     map[string]protoreflect.ServiceDescriptor // of descriptors, by service; nil: unreadable
	descriptions uint64                                    // how often descriptors have changed
	policies     Policies
}

// announcement is the value of a node's key.
type announcement struct {
	Boot      string     `json:"boot"`
	Endpoints []Endpoint `json:"endpoints"`
}

// Open watches the table, and announces the endpoints that were added to this node. It
// returns when the first view is complete.
func Open(ctx context.Context, opts Options) (*Registry, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		opts: opts, own: make(map[string]Endpoint),
		endpoints: make(map[outboard.NodeID]announcement), descriptors: make(map[string]map[outboard.NodeID]described),
		resolved: make(map[string]protoreflect.ServiceDescriptor),
	}
	r.repeat.init()
	var err error
	if r.view, err = state.Follow(ctx, opts.State, opts.Logger, r.apply); err != nil {
		return nil, fmt.Errorf("open services: %w", err)
	}
	if !opts.Reader {
		if err := r.restoreAdded(ctx); err != nil {
			r.repeat.close()
			return nil, errors.Join(fmt.Errorf("open services: %w", err), r.view.Close())
		}
	}
	return r, nil
}

// Close withdraws this node's endpoints and stops watching.
func (r *Registry) Close() error {
	r.repeat.close()
	if r.opts.Reader {
		return r.view.Close()
	}
	r.write.Lock()
	clear(r.own)
	r.write.Unlock()
	// Endpoints that can't be withdrawn end with the node's record.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.announce(ctx); err != nil {
		r.opts.Logger.Debug("withdraw the node's endpoints", "error", err)
	}
	return r.view.Close()
}

// Changed returns a channel that is closed at the next change of the registry, membership excepted.
func (r *Registry) Changed() <-chan struct{} { return r.view.Changed() }

func (r *Registry) apply(e state.Entry) (bool, error) {
	if node, ok := strings.CutPrefix(e.Key, endpointsPrefix); ok {
		return r.applyEndpoints(outboard.NodeID(node), e)
	}
	if service, ok := strings.CutPrefix(e.Key, servicesPrefix); ok {
		return r.applyDescriptors(service, e)
	}
	if e.Key == policiesKey {
		return r.applyPolicies(e)
	}
	return false, nil
}

func (r *Registry) applyEndpoints(node outboard.NodeID, e state.Entry) (bool, error) {
	if e.Deleted {
		delete(r.endpoints, node)
		return true, nil
	}
	var a announcement
	if err := json.Unmarshal(e.Value, &a); err != nil {
		return false, err
	}
	for i := range a.Endpoints {
		if a.Endpoints[i].Node != node {
			return false, errors.New("the record has another node's endpoints")
		}
		// A time that can be read from JSON may be one that can't be written to it.
		if _, err := a.Endpoints[i].Started.MarshalJSON(); err != nil {
			return false, err
		}
	}
	r.endpoints[node] = a
	return true, nil
}

// Endpoints returns the endpoints of the present nodes, by id.
func (r *Registry) Endpoints() []Endpoint {
	r.view.Lock()
	defer r.view.Unlock()
	var all []Endpoint
	for id, a := range r.endpoints {
		if n, ok := r.opts.Members.Node(id); ok && n.Boot == a.Boot {
			all = append(all, a.Endpoints...)
		}
	}
	slices.SortFunc(all, func(a, b Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Endpoint returns the endpoint with an ID, if it is there.
func (r *Registry) Endpoint(id string) (Endpoint, bool) {
	for _, e := range r.Endpoints() {
		if e.ID == id {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Offer adds an endpoint of this node, or replaces the one with its ID. After an error a new endpoint
// is not offered.
func (r *Registry) Offer(ctx context.Context, e Endpoint) error {
	e.Node = r.opts.Self
	r.write.Lock()
	_, had := r.own[e.ID]
	r.own[e.ID] = e
	r.write.Unlock()
	err := r.announce(ctx)
	if err != nil && !had {
		r.write.Lock()
		delete(r.own, e.ID)
		r.write.Unlock()
	}
	return err
}

// Withdraw removes an endpoint of this node. After an error the pool's table may still have the
// endpoint, and the Registry repeats the withdrawal until it succeeds.
func (r *Registry) Withdraw(ctx context.Context, id string) error {
	r.write.Lock()
	_, had := r.own[id]
	delete(r.own, id)
	r.write.Unlock()
	if !had {
		return nil
	}
	return r.announce(ctx)
}

// announce publishes this node's endpoints. Writes are ordered by a mutex, so the last one is
// the newest. After an error the Registry repeats it until the table has the endpoints of then.
func (r *Registry) announce(ctx context.Context) error {
	r.write.Lock()
	defer r.write.Unlock()
	a := announcement{Boot: r.opts.Boot, Endpoints: []Endpoint{}}
	for _, e := range r.own {
		a.Endpoints = append(a.Endpoints, e)
	}
	slices.SortFunc(a.Endpoints, func(a, b Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	text, err := json.Marshal(a)
	if err == nil {
		_, err = r.opts.State.Put(ctx, endpointsPrefix+string(r.opts.Self), text, 0)
	}
	if r.repeat.pending = err != nil; err != nil {
		r.repeat.start(r)
		return fmt.Errorf("offer endpoints: %w", err)
	}
	return nil
}
