package pool

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// janitor handles what only the passing of time changes, and deletes garbage: void grants of
// this node's devices, and tickets without a holder.
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
	devices, tickets := l.view.garbage()
	for _, id := range devices {
		records, revision := l.view.recordsOf(id)
		revision, err := l.writeRecords(ctx, id, records, revision)
		if err == nil {
			l.view.store(id, records, revision)
			continue
		}
		if err := l.afterConflict(ctx, id, err); err != nil && ctx.Err() == nil {
			l.log.Debug("purge void leases", "device", id, "error", err)
		}
	}
	for _, t := range tickets {
		if !l.tickets.has(t.ID) {
			l.removeTicket(ctx, t)
		}
	}
}

// sweep removes nodes that are gone, and wakes waiters when a node or a grant has become void
// since the last sweep.
func (v *view) sweep() {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	news := false
	for id, h := range v.all {
		if v.staleNode(h, now) {
			v.log.Info("a node left the pool", "node", id)
			delete(v.all, id)
			news = true
		}
	}
	for _, g := range v.granted {
		for _, r := range g.records {
			if void := v.isVoid(r, now); void != v.voided[r.Lease] {
				v.voided[r.Lease] = void
				news = true
			}
		}
	}
	for id, t := range v.queue {
		if here := v.isPresent(t.Holder, t.Boot, now); !here && !v.orphans[id] {
			v.orphans[id] = true
			news = true
		}
	}
	if news {
		v.notify()
	}
}

// garbage returns this node's devices that have void grants (also other devices whose void
// grants are of an earlier boot of this node), and the tickets of this node or of absent
// nodes.
func (v *view) garbage() (devices []outboard.DeviceID, tickets []ticket) {
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
		if slices.ContainsFunc(v.granted[id].records, func(r record) bool {
			return (own[id] || r.Holder == v.self) && v.isVoid(r, now)
		}) {
			devices = append(devices, id)
		}
	}
	for _, t := range v.queue {
		if t.Holder == v.self || !v.isPresent(t.Holder, t.Boot, now) {
			tickets = append(tickets, t)
		}
	}
	return devices, tickets
}
