package pool

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// ticketSet is the set of this node's tickets in use. Other tickets of the node are left over from
// a crash.
type ticketSet struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (s *ticketSet) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[string]bool)
	}
	s.ids[id] = true
}

func (s *ticketSet) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

func (s *ticketSet) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id]
}

// waitInQueue enqueues a ticket and waits until the request can be granted in its order.
func (l *leaser) waitInQueue(ctx context.Context, req Request) ([]outboard.Lease, error) {
	t, err := l.enqueue(ctx, req)
	if err != nil {
		return nil, err
	}
	defer l.dequeue(t)
	var expired <-chan time.Time
	if req.Timeout > 0 {
		timer := time.NewTimer(req.Timeout)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		changed := l.view.changed()
		earlier := l.earlierTickets(t)
		leases, err := l.tryAcquire(ctx, req, earlier)
		if l.awaitReturn(ctx, err, changed) {
			continue
		}
		if !errors.Is(err, errFull) {
			return leases, err
		}
		if req.Progress != nil {
			req.Progress(l.progress(req, len(earlier)+1))
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(l.busyError(req), ctx.Err())
		case <-expired:
			return nil, errors.Join(l.busyError(req), context.DeadlineExceeded)
		case <-changed:
		}
	}
}

func (l *leaser) enqueue(ctx context.Context, req Request) (ticket, error) {
	t := ticket{
		ID: string(l.view.self) + "/" + rand.Text(), Holder: l.view.self, Boot: l.view.boot,
		Selector: req.Selector, Count: req.Count, Memory: req.Memory, Program: req.Program,
		Since: time.Now().UTC(),
	}
	if err := checkCounts(l.view, t.Holder, 0, 1); err != nil {
		return t, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return t, fmt.Errorf("wait for a device: %w", err)
	}
	if len(text) > maxTicket {
		return t, outboard.Errorf(outboard.Invalid, req.op(), "the request has %d bytes, more than %d: shorten the name of its program", len(text), maxTicket)
	}
	l.tickets.add(t.ID)
	t.order, err = l.state.Create(ctx, queuePrefix+t.ID, text, 0)
	if err == nil {
		err = l.view.waitForRevision(ctx, t.order)
	}
	if err != nil {
		// The janitor removes the ticket if it was stored after all.
		l.tickets.remove(t.ID)
		return t, fmt.Errorf("wait for a device: %w", err)
	}
	return t, nil
}

// dequeue removes a ticket. Should that fail, the janitor removes it.
func (l *leaser) dequeue(t ticket) {
	l.tickets.remove(t.ID)
	ctx, cancel := context.WithTimeout(context.Background(), l.opts.Heartbeat)
	defer cancel()
	l.removeTicket(ctx, t)
}

func (l *leaser) removeTicket(ctx context.Context, t ticket) {
	entry, err := l.state.Get(ctx, queuePrefix+t.ID)
	if err == nil {
		_, err = l.state.Delete(ctx, queuePrefix+t.ID, entry.Revision)
	}
	if err != nil && !errors.Is(err, state.ErrNotFound) && !errors.Is(err, state.ErrConflict) {
		l.log.Debug("remove a ticket", "error", err)
	}
}

// Queue returns the requests of present nodes that wait for devices, in their order.
func (l *leaser) Queue() []client.QueuedRequest {
	var all []client.QueuedRequest
	for _, t := range l.view.waiting() {
		all = append(all, client.QueuedRequest{
			Holder: t.Holder, Program: t.Program, Count: max(t.Count, 1), Selector: t.Selector, Memory: t.Memory, Since: t.Since,
		})
	}
	return all
}

// satisfiable returns the tickets for which the pool has enough devices, in their order. The others do
// not delay later ones: the pool has lost devices since, or a node asks for more than there are.
func (l *leaser) satisfiable() []ticket {
	devices := l.view.devices()
	return slices.DeleteFunc(l.view.waiting(), func(t ticket) bool {
		missing := max(t.Count, 1)
		for _, d := range devices {
			if t.matches(d.Device) {
				missing--
			}
		}
		return missing > 0
	})
}

// earlierTickets returns the tickets before t that match a device that t matches.
func (l *leaser) earlierTickets(t ticket) []ticket {
	waiting := l.satisfiable()
	i := slices.IndexFunc(waiting, func(o ticket) bool { return o.ID == t.ID })
	if i < 0 {
		i = len(waiting) // The view has the ticket no more: rank it last.
	}
	devices := l.view.devices()
	return slices.DeleteFunc(waiting[:i], func(o ticket) bool {
		return !slices.ContainsFunc(devices, func(d DeviceState) bool { return o.matches(d.Device) && t.matches(d.Device) })
	})
}

func (l *leaser) progress(req Request, position int) Waiting {
	w := Waiting{Position: position}
	for _, d := range l.view.devices() {
		if !req.Selector.Match(d.Device) || d.Memory < req.Memory || slices.Contains(req.Exclude, d.ID) {
			continue
		}
		w.Fit++
		if fitsGrants(d, req) {
			w.Free++
		}
		if len(d.Grants) > 0 {
			w.Busy = append(w.Busy, d)
		}
	}
	return w
}
