package bucket

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// view is a bucket's content at a revision.
type view struct {
	keys map[string]Entry
	last uint64
	// bytes is what the keys and values take, with a guess of the map's share.
	bytes int64
	// expiring has the keys that will be gone, and some that were written again.
	expiring expiring
}

const entryOverhead = 100

// set takes one change over.
func (v *view) set(key string, e Entry, deleted bool) {
	v.remove(key)
	if deleted {
		return
	}
	v.keys[key] = e
	v.bytes += sizeOf(key, e.Value)
	if e.ExpiresMilli != 0 {
		v.expires(key, e)
	}
}

func (v *view) remove(key string) {
	if old, ok := v.keys[key]; ok {
		v.bytes -= sizeOf(key, old.Value)
		delete(v.keys, key)
	}
}

// look is what a key has at a moment.
func (v *view) look(key string, now time.Time) Entry {
	e := v.keys[key]
	if e.expired(now) {
		return Entry{}
	}
	return e
}

func sizeOf(key string, value []byte) int64 {
	return int64(len(key)+len(value)) + entryOverhead
}

// A plan is what transactions make of a view, before it is committed.
type plan struct {
	view    *view
	now     time.Time
	changes []state.KVChange
	index   map[string]int // of the key's change
	size    int            // of keys and values
	undone  []undo         // how to take back the transaction under way
}

// undo restores the change that an operation replaced.
type undo struct {
	at  int
	old state.KVChange
}

func newPlan(v *view, now time.Time) *plan {
	return &plan{view: v, now: now, index: make(map[string]int)}
}

// changed is the revision of a key that the plan changes: nobody knows it yet.
const changed = math.MaxUint64

func (p *plan) look(key string) Entry {
	i, ok := p.index[key]
	if !ok {
		return p.view.look(key, p.now)
	}
	if c := p.changes[i]; !c.Deleted {
		return Entry{c.Value, changed, c.ExpiresMilli}
	}
	return Entry{}
}

// txn decides one transaction. It returns the number of the condition that does
// not hold, and then changes nothing, or -1.
func (p *plan) txn(ops []Op) (failed int) {
	had := len(p.changes)
	p.undone = p.undone[:0]
	for i := range ops {
		if !p.op(&ops[i]) {
			p.rollback(had)
			return i
		}
	}
	return -1
}

func (p *plan) op(op *Op) (holds bool) {
	now := p.look(op.Key)
	switch op.Kind {
	case Put, PutFor:
		p.set(state.KVChange{Key: op.Key, Value: op.Value, ExpiresMilli: p.expires(op)})
	case Delete:
		if now.Revision != 0 {
			p.set(state.KVChange{Key: op.Key, Deleted: true})
		}
	case Add:
		sum, ok := add(now.Value, now.Revision != 0, op)
		if !ok {
			return false
		}
		expires := now.ExpiresMilli
		if now.Revision == 0 {
			expires = p.expires(op)
		}
		p.set(state.KVChange{Key: op.Key, Value: strconv.AppendInt(nil, sum, 10), ExpiresMilli: expires})
	case Missing:
		return now.Revision == 0
	case Revision:
		return now.Revision == op.Revision
	case PutIfMissing:
		if now.Revision != 0 {
			return false
		}
		p.set(state.KVChange{Key: op.Key, Value: op.Value, ExpiresMilli: p.expires(op)})
	}
	return true
}

// expires is when what an operation sets is gone, 0 for never.
func (p *plan) expires(op *Op) int64 {
	if op.TTL == 0 {
		return 0
	}
	return p.now.Add(op.TTL).UnixMilli()
}

// add computes a sum. It is not ok when the value is no number, when the sum
// is none that can be kept, or less than the least.
func add(value []byte, exists bool, op *Op) (sum int64, ok bool) {
	if exists {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return 0, false
		}
		sum = n
	}
	before := sum
	sum += op.Delta
	if (sum < before) != (op.Delta < 0) {
		return 0, false
	}
	return sum, sum >= op.Least
}

func (p *plan) set(change state.KVChange) {
	i, ok := p.index[change.Key]
	if !ok {
		p.index[change.Key] = len(p.changes)
		p.changes = append(p.changes, change)
		p.size += len(change.Key) + len(change.Value)
		return
	}
	p.undone = append(p.undone, undo{at: i, old: p.changes[i]})
	p.size += len(change.Value) - len(p.changes[i].Value)
	p.changes[i] = change
}

func (p *plan) rollback(had int) {
	for _, u := range slices.Backward(p.undone) {
		p.size += len(u.old.Value) - len(p.changes[u.at].Value)
		p.changes[u.at] = u.old
	}
	for _, c := range p.changes[had:] {
		delete(p.index, c.Key)
		p.size -= len(c.Key) + len(c.Value)
	}
	p.changes = p.changes[:had]
}
