package pool

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// janitor applies the changes that only the passing of time makes, and deletes garbage: void grants
// of this node's devices, and tickets without a holder.
func (p *Pool) janitor(ctx context.Context) {
	tick := time.NewTicker(p.opts.Heartbeat / 2)
	defer tick.Stop()
	for {
		changed := p.view.changed()
		p.collectGarbage(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.view.sweep()
		case <-changed:
		}
	}
}

func (l *leaser) collectGarbage(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.NodeTTL)
	defer cancel()
	grants, tickets := l.view.garbage()
	for _, g := range grants {
		records, revision := l.view.recordsOf(g.device)
		_, err := l.writeRecords(ctx, g.device, g.holder, records, revision)
		if err == nil {
			continue
		}
		if err := l.afterConflict(ctx, g.device, revision, err); err != nil && ctx.Err() == nil {
			l.log.Debug("purge void leases", "device", g.device, "error", err)
		}
	}
	for _, t := range tickets {
		// A node that keeps a copy of the table deletes the tickets of absent nodes.
		if !l.tickets.has(t.ID) && (t.Holder == l.view.self || l.state.KeepsCopy()) {
			l.removeTicket(ctx, t)
		}
	}
}

// sweep removes nodes that have left, and wakes waiters when a node or a grant has become void
// since the last sweep.
func (v *view) sweep() {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	changed := false
	for id, h := range v.all {
		if v.staleNode(h, now) {
			v.log.Warn("a node is silent, and counts as gone", "node", id)
			delete(v.all, id)
			changed = true
		}
	}
	for id, g := range v.granted {
		for _, r := range g.records() {
			key := grantKey{id, r.Holder, r.Lease}
			if void := v.isVoid(id, r, now); void != v.voided[key] {
				v.voided[key] = void
				changed = true
			}
		}
	}
	for id, t := range v.queue {
		if here := !t.void && v.isPresent(t.Holder, t.Boot, now); !here && !v.orphans[id] {
			v.orphans[id] = true
			changed = true
		}
	}
	if changed {
		v.notify()
	}
}

// voidGrants are the grants of a device to a holder, some of which are void.
type voidGrants struct {
	device outboard.DeviceID
	holder outboard.NodeID
}

// garbage returns the void grants of this node's devices (also those of other devices to an
// earlier boot of this node), and the tickets of this node or of absent nodes.
func (v *view) garbage() (grants []voidGrants, tickets []ticket) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	own := make(map[outboard.DeviceID]bool)
	if h := v.all[v.self]; h != nil {
		for _, d := range h.value.Devices {
			own[d.ID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(v.granted)) {
		for holder, h := range v.granted[id].holders {
			if (own[id] || holder == v.self) && slices.ContainsFunc(h.records, func(r record) bool { return v.isVoid(id, r, now) }) {
				grants = append(grants, voidGrants{id, holder})
			}
		}
	}
	for _, t := range v.queue {
		if t.void || t.Holder == v.self || !v.isPresent(t.Holder, t.Boot, now) {
			tickets = append(tickets, t)
		}
	}
	return grants, tickets
}
