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
	// bytes is the memory of the keys and values, with an estimate of the map's overhead.
	bytes int64
	// expiring has the keys with an expiry, and some entries that later writes have
	// made obsolete.
	expiring expiring
}

const entryOverhead = 100

// set applies one change.
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

// entry returns a key's entry at a time.
func (v *view) entry(key string, now time.Time) Entry {
	e := v.keys[key]
	if e.expired(now) {
		return Entry{}
	}
	return e
}

func sizeOf(key string, value []byte) int64 {
	return int64(len(key)+len(value)) + entryOverhead
}

// A plan has the changes of transactions that were evaluated on a view, before the commit.
type plan struct {
	view    *view
	now     time.Time
	changes []state.KVChange
	index   map[string]int // of the key's change
	size    int            // of keys and values
	undone  []undo         // undo log of the transaction in progress
}

// undo restores the change that an operation replaced.
type undo struct {
	at  int
	old state.KVChange
}

func newPlan(v *view, now time.Time) *plan {
	return &plan{view: v, now: now, index: make(map[string]int)}
}

// changed stands for the revision of a key that the plan changes, which is not known before
// the commit.
const changed = math.MaxUint64

func (p *plan) lookup(key string) Entry {
	i, ok := p.index[key]
	if !ok {
		return p.view.entry(key, p.now)
	}
	if c := p.changes[i]; !c.Deleted {
		return Entry{c.Value, changed, c.ExpiresMilli}
	}
	return Entry{}
}

// txn evaluates one transaction. It returns -1, or the index of the first condition that does
// not hold; it changes nothing in that case.
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
	now := p.lookup(op.Key)
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

// expires returns when the value that an operation sets expires, 0 for never.
func (p *plan) expires(op *Op) int64 {
	if op.TTL == 0 {
		return 0
	}
	return p.now.Add(op.TTL).UnixMilli()
}

// add computes a sum. It returns false if the value is not a number, if the sum overflows, or
// if it is less than op.Least.
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
