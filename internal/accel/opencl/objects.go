package opencl

import (
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/accel/session"
)

// objects maps the client's ids to the driver's handles. Only the dispatcher uses it, except
// updates.
type objects struct {
	budget   *budget
	table    *session.Table
	creating map[uint64]chan struct{} // objects that a goroutine beside the dispatcher creates
	updates  objectUpdates
}

// add adds a new object to the table; the entry of a failed one keeps its status.
func (o *objects) add(c *call, kind session.Kind, id uint64, handle uintptr, status int32) {
	e := session.Entry{Kind: kind, Handle: handle}
	if status != clSuccess {
		e = session.Entry{Kind: kind, Failed: status}
	}
	if err := o.table.Add(id, e); err != nil {
		c.broken = err
		return
	}
	if e.Handle != 0 {
		o.budget.add(costOf(kind))
	}
}

// applyUpdates applies the queued updates to the table of objects.
func (o *objects) applyUpdates() {
	if o.updates.count.Load() == 0 {
		return
	}
	for _, n := range o.updates.removeAll() {
		e, ok := o.table.Any(n.id)
		switch {
		case !ok: // released meanwhile
		case n.failed:
			e.Failed = n.entry.Failed
			o.table.Replace(n.id, e)
		default:
			o.table.Replace(n.id, n.entry)
		}
	}
}

// await waits for an object that is still being created beside the dispatcher.
func (o *objects) await(id uint64) {
	if made := o.creating[id]; made != nil {
		<-made
		delete(o.creating, id)
		o.applyUpdates()
	}
}

// promise adds an object that a goroutine beside the dispatcher creates. That goroutine
// calls resolve with the result.
func (o *objects) promise(c *call, kind session.Kind, id uint64) (resolve func(handle uintptr, status int32)) {
	o.add(c, kind, id, 0, invalid[kind])
	made := make(chan struct{})
	o.creating[id] = made
	return func(handle uintptr, status int32) {
		e := session.Entry{Kind: kind, Handle: handle}
		if status != clSuccess {
			e.Failed = status
		}
		o.updates.add(objectUpdate{id: id, entry: e})
		close(made)
	}
}

// objectUpdates are changes to the table of objects that other goroutines queue for the dispatcher
// to apply.
type objectUpdates struct {
	count   atomic.Int32
	mu      sync.Mutex
	updates []objectUpdate
}

// objectUpdate is the new entry of an id.
type objectUpdate struct {
	id    uint64
	entry session.Entry
	// failed reports that the object keeps its handle, but calls that use it must fail.
	failed bool
}

func (l *objectUpdates) add(n objectUpdate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updates = append(l.updates, n)
	l.count.Store(int32(len(l.updates)))
}

// removeAll returns the updates and empties the list.
func (l *objectUpdates) removeAll() []objectUpdate {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.updates
	l.updates = nil
	l.count.Store(0)
	return all
}
