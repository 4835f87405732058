package calls

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// A roster is what the programs of a node offer through its processes. A program
// that changes over from one process to another remains the endpoint that it was,
// whatever becomes of the first.
type roster struct {
	self outboard.NodeID
	pool interface {
		Offer(ctx context.Context, e services.Endpoint) error
		Withdraw(ctx context.Context, id string) error
	}

	telling sync.Mutex // so that what is told last is what is; before mu
	mu      sync.Mutex
	serial  int // of the last endpoint
	all     map[string]*offered
	ended   map[int]bool // processes
}

// An offered is an endpoint that a process has offered.
type offered struct {
	endpoint services.Endpoint // its Process reaches the program
	next     int               // to which the program is changing over, or 0
}

func newRoster(self outboard.NodeID, registry *services.Registry) *roster {
	return &roster{self: self, pool: registry, all: make(map[string]*offered), ended: make(map[int]bool)}
}

// id is a new endpoint's.
func (r *roster) id(prefix string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newID(prefix)
}

func (r *roster) newID(prefix string) string {
	r.serial++
	return fmt.Sprintf("%s/%s%d", r.self, prefix, r.serial)
}

// offer tells the pool of a program. One that was the endpoint previous on another
// process remains that.
func (r *roster) offer(ctx context.Context, process int, e *services.Endpoint, previous string) (*services.Endpoint, error) {
	if e == nil {
		return nil, outboard.Errorf(outboard.Protocol, "offer", "no endpoint")
	}
	told, err := r.enter(process, *e, previous)
	if err != nil {
		return nil, err
	}
	if err := r.tell(ctx, told.ID); err != nil {
		if e.ID == "" { // the program does not hear of the new one
			err = errors.Join(err, r.withdraw(ctx, process, told.ID))
		}
		return nil, err
	}
	return &told, nil
}

func (r *roster) enter(process int, e services.Endpoint, previous string) (services.Endpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended[process] {
		return e, outboard.Errorf(outboard.Unreachable, "offer", "process %d has ended", process)
	}
	had := r.all[e.ID]
	if before := r.all[previous]; e.ID == "" && before != nil && before.endpoint.Process != process && before.endpoint.PID == e.PID {
		e.ID, e.Started, had = previous, before.endpoint.Started, before
		had.next = process
	}
	if had == nil {
		e.ID = r.newID("")
		had = &offered{endpoint: services.Endpoint{Process: process}}
		r.all[e.ID] = had
	}
	// Until the program is settled it is reached where it was.
	e.Node, e.Process = r.self, had.endpoint.Process
	had.endpoint = e
	return e, nil
}

// settled says that a program is reached through a process now, and by which it was
// before: 0 for the same.
func (r *roster) settled(process int, id string) (before int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.all[id]
	if o == nil || o.next != process {
		return 0
	}
	before = o.endpoint.Process
	o.endpoint.Process, o.next = process, 0
	return before
}

// withdraw ends an endpoint as far as a process has it: a program that changes over
// to another is that one's.
func (r *roster) withdraw(ctx context.Context, process int, id string) error {
	if !r.leave(process, id) {
		return nil
	}
	return r.tell(ctx, id)
}

// leave says whether the pool is to hear of it.
func (r *roster) leave(process int, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := r.all[id]; {
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
		delete(r.all, id)
	}
	return true
}

// withdrawAll ends the endpoints of a process that has ended.
func (r *roster) withdrawAll(ctx context.Context, process int) error {
	r.mu.Lock()
	r.ended[process] = true
	var ids []string
	for id, o := range r.all {
		if o.endpoint.Process == process || o.next == process {
			ids = append(ids, id)
		}
	}
	r.mu.Unlock()
	var all error
	for _, id := range ids {
		all = errors.Join(all, r.withdraw(ctx, process, id))
	}
	return all
}

// tell brings the pool's table up to date with an endpoint.
func (r *roster) tell(ctx context.Context, id string) error {
	r.telling.Lock()
	defer r.telling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, offerLimit)
	defer cancel()
	r.mu.Lock()
	o := r.all[id]
	if o == nil {
		r.mu.Unlock()
		return r.pool.Withdraw(ctx, id)
	}
	e := o.endpoint
	r.mu.Unlock()
	return r.pool.Offer(ctx, e)
}
