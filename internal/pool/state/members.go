package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

const (
	votersKey    = "config/voters"
	readyKey     = "config/ready"
	memberPrefix = "config/members/"
	// presencePrefix precedes the names of the nodes in the keys of their records, which the pool
	// writes with each heartbeat.
	presencePrefix = "nodes/"
)

// A member is the record of one node that the state itself needs.
type member struct {
	Name string `json:"name"`
	// Addr is the address at which other nodes reach the node, for guests.
	Addr string `json:"addr"`
	// Route is the address at which other voters reach the node if it becomes a voter.
	Route string `json:"route"`
	// Joined is the revision of the member's first record, 0 in that record.
	Joined uint64 `json:"joined,omitempty"`
	// Prepared says that the member's server runs in the voters' cluster and
	// knows its leader.
	Prepared bool `json:"prepared,omitempty"`
}

// members is the watched view of the records and of the chosen voters.
type members struct {
	mu     sync.Mutex
	all    map[string]member
	voters []member
	// ready says that the voters hold the table.
	ready   bool
	former  []string        // nodes that kept a copy once
	present map[string]bool // nodes whose record has not expired
	changed chan struct{}
}

func newMembers() *members {
	return &members{all: make(map[string]member), present: make(map[string]bool), changed: make(chan struct{}, 1)}
}

// apply applies a change of the table.
func (m *members) apply(c Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, e := range c.Entries {
		if name, ok := strings.CutPrefix(e.Key, presencePrefix); ok {
			m.present[name] = !e.Deleted
		} else if strings.HasPrefix(e.Key, "config/") {
			errs = append(errs, m.applyEntry(e))
		}
	}
	if len(errs) > 0 {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
	return errors.Join(errs...)
}

func (m *members) applyEntry(e Entry) error {
	name, isMember := strings.CutPrefix(e.Key, memberPrefix)
	switch {
	case isMember && e.Deleted:
		delete(m.all, name)
	case isMember:
		var r member
		if err := json.Unmarshal(e.Value, &r); err != nil || r.Name != name {
			return fmt.Errorf("ignored the record %s", e.Key)
		}
		if r.Joined == 0 {
			r.Joined = e.Revision
		}
		m.all[name] = r
	case e.Key == votersKey && !e.Deleted:
		var voters []member
		if err := json.Unmarshal(e.Value, &voters); err != nil {
			return fmt.Errorf("ignored the record %s: %w", e.Key, err)
		}
		m.voters = voters
	case e.Key == formerKeepersKey && !e.Deleted:
		var former []string
		if err := json.Unmarshal(e.Value, &former); err != nil {
			return fmt.Errorf("ignored the record %s: %w", e.Key, err)
		}
		m.former = former
	case e.Key == readyKey:
		m.ready = !e.Deleted
	}
	return nil
}

// view returns the chosen voters, all members in the order in which they joined, and whether the
// voters hold the table. The addresses of voters are those of their last start, not those at which
// they were chosen.
func (m *members) view() (voters, all []member, ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = slices.SortedFunc(maps.Values(m.all), func(a, b member) int { return cmp.Compare(a.Joined, b.Joined) })
	voters = slices.Clone(m.voters)
	for i, v := range voters {
		if current, ok := m.all[v.Name]; ok {
			voters[i] = current
		}
	}
	return voters, all, m.ready
}

// register writes this node's record.
func (s *State) register(ctx context.Context, prepared bool) error {
	e := s.server
	me := member{Name: e.opts.Name, Addr: e.opts.Addr, Route: e.routeAddr(), Prepared: prepared}
	key := memberPrefix + me.Name
	entry, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	var old member
	if err == nil && json.Unmarshal(entry.Value, &old) == nil {
		me.Joined = cmp.Or(old.Joined, entry.Revision)
		if old.Addr == me.Addr && old.Route == me.Route && old.Prepared == me.Prepared {
			return nil
		}
	}
	return s.putJSON(ctx, key, me)
}

// ForgetMember deletes the record of a node that was removed from the pool. Voters whose
// cluster it was in continue without it.
func (s *State) ForgetMember(ctx context.Context, name string) error {
	key := memberPrefix + name
	entry, err := s.Get(ctx, key)
	if err == nil {
		_, err = s.Delete(ctx, key, entry.Revision)
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (t table) putJSON(ctx context.Context, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	_, err = t.Put(ctx, key, text, 0)
	return err
}
