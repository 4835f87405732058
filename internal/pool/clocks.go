package pool

import (
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// clockTolerance is the difference between the clocks of two nodes from which it is reported. It is
// well below what certificates and claims tolerate, and above the delay of a record.
const clockTolerance = time.Minute

// A nodeRecord is a node's record in the table.
type nodeRecord struct {
	outboard.Node
	// Clock is the time at which the node wrote the record, zero in records of earlier versions.
	Clock time.Time `json:"clock,omitzero"`
}

// clockOffsets are by how much the clocks of other nodes are ahead of this node's. A record that
// takes long makes a clock appear late by that time.
type clockOffsets map[outboard.NodeID]time.Duration

func (c clockOffsets) observe(r *nodeRecord, now time.Time) {
	if r.Clock.IsZero() {
		delete(c, r.ID)
		return
	}
	c[r.ID] = r.Clock.Sub(now)
}

// ClockOffsets returns the nodes whose clocks differ notably from this node's, by name.
func ClockOffsets(p *Pool) []client.ClockOffset {
	p.view.mu.Lock()
	defer p.view.mu.Unlock()
	var all []client.ClockOffset
	for _, id := range slices.Sorted(maps.Keys(p.view.clocks)) {
		if ahead := p.view.clocks[id]; id != p.view.self && ahead.Abs() >= clockTolerance {
			all = append(all, client.ClockOffset{Node: id, Ahead: client.Duration(ahead.Round(time.Second))})
		}
	}
	return all
}

// warnOfClocks logs each node whose clock differs, unless it is in warned, and returns the nodes that
// it has logged.
func warnOfClocks(p *Pool, warned map[outboard.NodeID]bool) map[outboard.NodeID]bool {
	differ := map[outboard.NodeID]bool{}
	for _, c := range ClockOffsets(p) {
		if differ[c.Node] = true; !warned[c.Node] {
			p.log.Warn("the clock of a node differs from this node's: set the clocks of both machines", "other", c.Node, "ahead", time.Duration(c.Ahead))
		}
	}
	return differ
}
