package calls

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// An endpointTable holds the endpoints that the programs of a node offer through its processes. A
// program that moves from one process to another keeps its endpoint, even when the first process
// dies.
type endpointTable struct {
	self outboard.NodeID
	pool interface {
		Offer(ctx context.Context, e services.Endpoint) error
		Withdraw(ctx context.Context, id string) error
	}

	publishing sync.Mutex // keeps publications in the order of the changes; before mu
	mu         sync.Mutex
	serial     int // number of the last endpoint
	all        map[string]*offeredEndpoint
	ended      map[int]bool // processes
}

// An offeredEndpoint is an endpoint that a process has offered.
type offeredEndpoint struct {
	endpoint services.Endpoint // its Process reaches the program
	next     int               // the process that the program is moving to, or 0
}

func newEndpointTable(self outboard.NodeID, registry *services.Registry) *endpointTable {
	return &endpointTable{self: self, pool: registry, all: make(map[string]*offeredEndpoint), ended: make(map[int]bool)}
}

// newID returns the ID of a new endpoint. The mutex is held.
func (t *endpointTable) newID() string {
	t.serial++
	return fmt.Sprintf("%s/%d", t.self, t.serial)
}

// offer publishes the endpoint of a program. A program whose endpoint on another process was
// previous keeps that endpoint.
func (t *endpointTable) offer(ctx context.Context, process int, e *services.Endpoint, previous string) (*services.Endpoint, error) {
	if e == nil {
		return nil, outboard.Errorf(outboard.Protocol, "offer", "no endpoint")
	}
	stored, err := t.store(process, *e, previous)
	if err != nil {
		return nil, err
	}
	if err := t.publish(ctx, stored.ID); err != nil {
		if e.ID == "" { // an endpoint without an ID: the program does not get the new one
			err = errors.Join(err, t.withdraw(ctx, process, stored.ID))
		}
		return nil, err
	}
	return &stored, nil
}

func (t *endpointTable) store(process int, e services.Endpoint, previous string) (services.Endpoint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended[process] {
		return e, outboard.Errorf(outboard.Unreachable, "offer", "process %d has ended", process)
	}
	had := t.all[e.ID]
	if before := t.all[previous]; e.ID == "" && before != nil && before.endpoint.Process != process && before.endpoint.PID == e.PID {
		e.ID, e.Started, had = previous, before.endpoint.Started, before
		had.next = process
	}
	if had == nil {
		e.ID = t.newID()
		had = &offeredEndpoint{endpoint: services.Endpoint{Process: process}}
		t.all[e.ID] = had
	}
	// Until the program is settled it is reached through its previous process.
	e.Node, e.Process = t.self, had.endpoint.Process
	had.endpoint = e
	return e, nil
}

// settled records that a program is now reached through a process, and returns its previous
// process: 0 if that is the same.
func (t *endpointTable) settled(process int, id string) (before int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.all[id]
	if o == nil || o.next != process {
		return 0
	}
	before = o.endpoint.Process
	o.endpoint.Process, o.next = process, 0
	return before
}

// withdraw removes an endpoint if it belongs to the process: a program that is moving belongs to
// the process that it is moving to.
func (t *endpointTable) withdraw(ctx context.Context, process int, id string) error {
	if !t.remove(process, id) {
		return nil
	}
	return t.publish(ctx, id)
}

// remove reports whether the pool's table has to change.
func (t *endpointTable) remove(process int, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch o := t.all[id]; {
	case o == nil:
		return false
	case o.next == process:
		o.next = 0
		return false
	case o.endpoint.Process != process:
		return false
	case o.next != 0:
		o.endpoint.Process, o.next = o.next, 0
	default:
		delete(t.all, id)
	}
	return true
}

// withdrawAll removes the endpoints of a process that has ended.
func (t *endpointTable) withdrawAll(ctx context.Context, process int) error {
	t.mu.Lock()
	t.ended[process] = true
	var ids []string
	for id, o := range t.all {
		if o.endpoint.Process == process || o.next == process {
			ids = append(ids, id)
		}
	}
	t.mu.Unlock()
	var all error
	for _, id := range ids {
		all = errors.Join(all, t.withdraw(ctx, process, id))
	}
	return all
}

// publish updates the pool's table with the current state of an endpoint.
func (t *endpointTable) publish(ctx context.Context, id string) error {
	t.publishing.Lock()
	defer t.publishing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, offerLimit)
	defer cancel()
	t.mu.Lock()
	o := t.all[id]
	if o == nil {
		t.mu.Unlock()
		return t.pool.Withdraw(ctx, id)
	}
	e := o.endpoint
	t.mu.Unlock()
	return t.pool.Offer(ctx, e)
}
