// Package members holds the nodes of the pool, as a tenant's process learns of them from its node.
package members

import (
	"sync"

	"github.com/outboard-run/outboard"
)

// Members are the nodes of the pool. All methods may be called by several goroutines.
type Members struct {
	self outboard.NodeID

	mu      sync.Mutex
	nodes   []outboard.Node
	changed chan struct{} // nil: no caller waits
}

// New returns the members that a process on the node self knows at its start.
func New(self outboard.NodeID, nodes []outboard.Node) *Members {
	return &Members{self: self, nodes: nodes}
}

// Set replaces the members.
func (m *Members) Set(nodes []outboard.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = nodes
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// Nodes returns the current members.
func (m *Members) Nodes() []outboard.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes
}

// Changed returns a channel that is closed when the members change.
func (m *Members) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// Known reports whether the process has heard of any member.
func (m *Members) Known() bool { return len(m.Nodes()) > 0 }

// Peers returns all members except this process's node.
func (m *Members) Peers() []outboard.NodeID {
	var all []outboard.NodeID
	for _, n := range m.Nodes() {
		if n.ID != m.self {
			all = append(all, n.ID)
		}
	}
	return all
}
