package session

import (
	"errors"
	"fmt"
)

// Errors of a Table.
var (
	// ErrNoObject is the error of an id that names no object, or an object of another kind.
	ErrNoObject = errors.New("no such object")
	// ErrIDUsed is the error of an id that was used before.
	ErrIDUsed = errors.New("id was used before")
	// ErrTableFull is the error of a session with too many live objects.
	ErrTableFull = errors.New("too many objects")
)

// MaxObjects bounds the live objects of a session.
const MaxObjects = 4 << 20

// Kind is the kind of an object; the API's description assigns its values.
type Kind uint8

// Entry is the object of an id: a driver's handle, or the reason why there is none.
type Entry struct {
	Kind   Kind
	Handle uintptr
	// Failed is the result of the call that failed to create the object.
	Failed int32
}

// Table maps the ids that a client assigns to a driver's handles. Only one goroutine may use it.
//
// Ids are never reused. Clients count them up, but several threads may send theirs a little out of
// order: the Table records exactly which of the last usedWindow ids below the highest were used,
// and treats all older ones as used.
type Table struct {
	objects map[uint64]Entry
	limit   int
	highest uint64
	used    [usedWindow / 64]uint64
}

const usedWindow = 1 << 16

// NewTable creates a table for at most limit live objects; 0 means MaxObjects.
func NewTable(limit int) *Table {
	if limit <= 0 {
		limit = MaxObjects
	}
	return &Table{objects: make(map[uint64]Entry), limit: limit}
}

// Add adds a new object.
func (t *Table) Add(id uint64, e Entry) error {
	switch {
	case id == 0:
		return fmt.Errorf("object 0: %w", ErrNoObject)
	case len(t.objects) >= t.limit:
		return fmt.Errorf("object %d: %w", id, ErrTableFull)
	case !t.markUsed(id):
		return fmt.Errorf("object %d: %w", id, ErrIDUsed)
	}
	t.objects[id] = e
	return nil
}

// Get looks up an object of the given kind.
func (t *Table) Get(id uint64, kind Kind) (Entry, bool) {
	e, ok := t.objects[id]
	return e, ok && e.Kind == kind
}

// Any looks up an object of any kind.
func (t *Table) Any(id uint64) (Entry, bool) {
	e, ok := t.objects[id]
	return e, ok
}

// Replace changes the entry of an id, if it has one.
func (t *Table) Replace(id uint64, e Entry) {
	if _, ok := t.objects[id]; ok {
		t.objects[id] = e
	}
}

// Remove removes an object and returns its entry.
func (t *Table) Remove(id uint64, kind Kind) (Entry, bool) {
	e, ok := t.Get(id, kind)
	if ok {
		delete(t.objects, id)
	}
	return e, ok
}

// Len returns the number of live objects.
func (t *Table) Len() int { return len(t.objects) }

// All calls visit for each live object, in no particular order, until visit returns false.
func (t *Table) All(visit func(id uint64, e Entry) bool) {
	for id, e := range t.objects {
		if !visit(id, e) {
			return
		}
	}
}

// markUsed reports whether id was unused, and marks it as used.
func (t *Table) markUsed(id uint64) bool {
	if id > t.highest {
		t.slide(id)
	} else if t.highest-id >= usedWindow {
		return false
	}
	word, bit := &t.used[id%usedWindow/64], uint64(1)<<(id%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// slide moves the window up to id, with the ids in between unused.
func (t *Table) slide(id uint64) {
	if id-t.highest >= usedWindow {
		clear(t.used[:])
		t.highest = id
		return
	}
	for t.highest < id {
		t.highest++
		t.used[t.highest%usedWindow/64] &^= 1 << (t.highest % 64)
	}
}
