package policy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
)

// ErrNoVersion reports that there is no earlier version to restore.
var ErrNoVersion = errors.New("no earlier version")

// A Table holds the versions of the policies of a process, one of them in force. The zero
// value has none.
type Table struct {
	current atomic.Pointer[Version]
	nodes   atomic.Int64

	mu      sync.Mutex
	history []*Version // oldest first; the last one is in force
	undo    []*Version // applied and not rolled back; the set of the last one is in force
	next    int
}

// A Version is a set that is or was in force.
type Version struct {
	// Number counts the versions, from 1.
	Number int
	// Applied is the time at which it came into force.
	Applied time.Time
	// Set is the compiled policies.
	Set *Set
	// Of is the version that a roll-back restored; 0 for none.
	Of int
}

// KeptVersions is the number of versions that a Table retains.
const KeptVersions = 16

// Version returns the version in force; nil before the first Apply.
func (t *Table) Version() *Version { return t.current.Load() }

// Set returns the set in force; nil before the first Apply.
func (t *Table) Set() *Set {
	if v := t.current.Load(); v != nil {
		return v.Set
	}
	return nil
}

// For returns the chain of a call in the set in force. It is never nil.
func (t *Table) For(h *call.Head) *Chain {
	if v := t.current.Load(); v != nil {
		return v.Set.For(h)
	}
	return &Chain{}
}

// SetNodes sets the number of nodes that share the rates of the whole pool.
func (t *Table) SetNodes(n int) { t.nodes.Store(int64(n)) }

// Nodes returns the number set by SetNodes.
func (t *Table) Nodes() int { return int(t.nodes.Load()) }

// Apply puts a set in force. Calls in flight end on the chain on which they began; the state
// of policies with the same name continues.
func (t *Table) Apply(s *Set, now time.Time) *Version {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.apply(&Version{Set: s, Applied: now})
	t.undo = append(t.undo, v)
	if len(t.undo) > KeptVersions {
		t.undo = slices.Delete(t.undo, 0, 1)
	}
	return v
}

func (t *Table) apply(v *Version) *Version {
	t.next++
	v.Number = t.next
	v.Set = v.Set.withState(t.lastPolicy, v.Applied)
	t.history = append(t.history, v)
	if len(t.history) > KeptVersions {
		t.history = slices.Delete(t.history, 0, 1)
	}
	t.current.Store(v)
	return v
}

// lastPolicy returns the policy of a name and a kind in the last retained version that has one: a
// policy that was removed and comes back continues with its state, too. The caller holds mu.
func (t *Table) lastPolicy(name, kind string) *policy {
	for _, v := range slices.Backward(t.history) {
		if p := v.Set.policy(name, kind); p != nil {
			return p
		}
	}
	return nil
}

// Rollback undoes the last Apply that was not undone: the set before it comes into force
// again, as a new version.
func (t *Table) Rollback(now time.Time) (*Version, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.undo) < 2 {
		return nil, fmt.Errorf("roll back policies: %w", ErrNoVersion)
	}
	t.undo = t.undo[:len(t.undo)-1]
	target := t.undo[len(t.undo)-1]
	return t.apply(&Version{Set: target.Set, Applied: now, Of: target.Number}), nil
}

// History returns the retained versions, oldest first. The last one is in force.
func (t *Table) History() []*Version {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.history)
}
