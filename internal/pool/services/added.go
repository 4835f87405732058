package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// addedPrefix precedes the key of the gRPC servers that a node's operator added: unlike the
// endpoints of programs, they outlive the node's restarts.
const addedPrefix = "added-endpoints/"

// maxAdded bounds the added endpoints of a node.
const maxAdded = 1000

// Add adds a gRPC server that this node reaches at e.Address. The address identifies the server:
// adding it again adds e's services to its services, and replaces a weight. The server stays added
// until Remove, also when the node restarts.
func (r *Registry) Add(ctx context.Context, e Endpoint) (Endpoint, error) {
	e.ID, e.Node, e.Process = fmt.Sprintf("%s/%s", r.opts.Self, e.Address), r.opts.Self, 0
	r.write.Lock()
	had, ok := r.own[e.ID]
	if ok {
		e.Services = slices.Concat(had.Services, e.Services)
		e.Started = had.Started
		if e.Weight == 0 {
			e.Weight = had.Weight
		}
	} else if len(r.added()) >= maxAdded {
		r.write.Unlock()
		return e, outboard.Errorf(outboard.Exhausted, "add an endpoint", "node %s has %d already", r.opts.Self, maxAdded)
	}
	slices.Sort(e.Services)
	e.Services = slices.Compact(e.Services)
	r.own[e.ID] = e
	r.write.Unlock()
	return e, r.announceAdded(ctx, e.ID, had)
}

// Remove removes a server that was added to this node, by its ID or its address. Its calls
// in flight end normally.
func (r *Registry) Remove(ctx context.Context, name string) error {
	r.write.Lock()
	found := ""
	for id, e := range r.own {
		if e.Address != "" && (id == name || e.Address == name) {
			found = id
		}
	}
	had := r.own[found]
	delete(r.own, found)
	r.write.Unlock()
	if found == "" {
		return r.notAdded(name)
	}
	return r.announceAdded(ctx, found, had)
}

// notAdded returns an error that says why name cannot be removed here.
func (r *Registry) notAdded(name string) error {
	const op = "remove an endpoint"
	for _, e := range r.Endpoints() {
		switch {
		case e.ID != name && (e.Address == "" || e.Address != name):
		case e.Address == "":
			return outboard.Errorf(outboard.Conflict, op, "%s is a program: it is removed when it ends", e.ID)
		case e.Node != r.opts.Self:
			return outboard.Errorf(outboard.Conflict, op, "%s was added to node %s: remove it there", e.ID, e.Node)
		}
	}
	return outboard.Errorf(outboard.NotFound, op, "no endpoint %q was added: see `outboard endpoints`", name)
}

// added returns the servers among this node's endpoints. write is held.
func (r *Registry) added() []Endpoint {
	list := []Endpoint{}
	for _, e := range r.own {
		if e.Address != "" {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Endpoint) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// announceAdded stores the added servers for the next start, and announces them. If it fails, it
// restores had as the endpoint with that ID.
func (r *Registry) announceAdded(ctx context.Context, id string, had Endpoint) error {
	if err := r.storeAdded(ctx); err != nil {
		r.write.Lock()
		defer r.write.Unlock()
		if delete(r.own, id); had.ID != "" {
			r.own[id] = had
		}
		return fmt.Errorf("store the added endpoints: %w", err)
	}
	return r.announce(ctx)
}

func (r *Registry) storeAdded(ctx context.Context) error {
	r.write.Lock()
	defer r.write.Unlock()
	text, err := json.Marshal(r.added())
	if err != nil {
		return err
	}
	_, err = r.opts.State.Put(ctx, addedPrefix+string(r.opts.Self), text, 0)
	return err
}

// restoreAdded announces the servers that were added before the node's last stop.
func (r *Registry) restoreAdded(ctx context.Context) error {
	entry, err := r.opts.State.Get(ctx, addedPrefix+string(r.opts.Self))
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var list []Endpoint
	if err := json.Unmarshal(entry.Value, &list); err != nil {
		r.opts.Logger.Warn("ignored the added endpoints", "error", err)
		return nil
	}
	r.write.Lock()
	for _, e := range list {
		if e.Address != "" && e.Node == r.opts.Self {
			r.own[e.ID] = e
		}
	}
	r.write.Unlock()
	return r.announce(ctx)
}
