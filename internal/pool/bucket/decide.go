package bucket

import (
	"math"
	"slices"
	"strconv"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// view is a bucket's content at a revision.
type view struct {
	keys map[string]Entry
	last uint64
	// bytes is what the keys and values take, with a guess of the map's share.
	bytes int64
}

const entryOverhead = 100

// set takes one change over.
func (v *view) set(key string, value []byte, revision uint64, deleted bool) {
	if old, ok := v.keys[key]; ok {
		v.bytes -= sizeOf(key, old.Value)
		delete(v.keys, key)
	}
	if !deleted {
		v.keys[key] = Entry{Value: value, Revision: revision}
		v.bytes += sizeOf(key, value)
	}
}

func sizeOf(key string, value []byte) int64 {
	return int64(len(key)+len(value)) + entryOverhead
}

// A plan is what transactions make of a view, before it is committed.
type plan struct {
	view    *view
	changes []state.KVChange
	index   map[string]int // of the key's change
	size    int            // of keys and values
	undone  []undo         // how to take back the transaction under way
}

// undo says how to take one operation back: to the change that was there.
type undo struct {
	at  int
	old state.KVChange
}

func newPlan(v *view) *plan { return &plan{view: v, index: make(map[string]int)} }

// changed is the revision of a key that the plan changes: nobody knows it yet.
const changed = math.MaxUint64

func (p *plan) look(key string) (value []byte, revision uint64) {
	if i, ok := p.index[key]; ok {
		if p.changes[i].Deleted {
			return nil, 0
		}
		return p.changes[i].Value, changed
	}
	e := p.view.keys[key]
	return e.Value, e.Revision
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
	value, revision := p.look(op.Key)
	switch op.Kind {
	case Put:
		p.set(op.Key, op.Value, false)
	case Delete:
		if revision != 0 {
			p.set(op.Key, nil, true)
		}
	case Add:
		sum, ok := add(value, revision != 0, op)
		if !ok {
			return false
		}
		p.set(op.Key, strconv.AppendInt(nil, sum, 10), false)
	case Missing:
		return revision == 0
	case Revision:
		return revision == op.Revision
	case PutIfMissing:
		if revision != 0 {
			return false
		}
		p.set(op.Key, op.Value, false)
	}
	return true
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

func (p *plan) set(key string, value []byte, deleted bool) {
	change := state.KVChange{Key: key, Value: value, Deleted: deleted}
	i, ok := p.index[key]
	if !ok {
		p.index[key] = len(p.changes)
		p.changes = append(p.changes, change)
		p.size += len(key) + len(value)
		return
	}
	p.undone = append(p.undone, undo{at: i, old: p.changes[i]})
	p.size += len(value) - len(p.changes[i].Value)
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
