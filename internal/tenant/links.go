package tenant

import (
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// links knows how long it takes to hand something to other nodes, from the calls that
// were made there. The zero value supposes a local network.
type links struct {
	mu    sync.Mutex
	known map[outboard.NodeID]placement.Link
}

const (
	supposedLatency                  = 500 * time.Microsecond
	supposedBandwidth outboard.Bytes = 100 << 20
	// bulk is what takes long enough to tell the bandwidth.
	bulk outboard.Bytes = 1 << 20
	// weight is how many calls of before one call counts against.
	weight = 8
)

// note takes account of a call: how much went both ways, and how long it took beside
// the function's own time.
func (l *links) note(node outboard.NodeID, size outboard.Bytes, took time.Duration) {
	if took <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[outboard.NodeID]placement.Link{}
	}
	k, ok := l.known[node]
	if !ok {
		k = placement.Link{Latency: supposedLatency, Bandwidth: supposedBandwidth}
	}
	if size < bulk {
		k.Latency += (took - k.Latency) / weight
	} else if took > k.Latency {
		now := outboard.Bytes(float64(size) / (took - k.Latency).Seconds())
		k.Bandwidth += (now - k.Bandwidth) / weight
	}
	l.known[node] = k
}

// to is the way to a node, there and back as one.
func (l *links) to(node outboard.NodeID) placement.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k, ok := l.known[node]; ok {
		return k
	}
	return placement.Link{Latency: supposedLatency, Bandwidth: supposedBandwidth}
}

// between is the way between two of the nodes, of which the first is this one: what
// goes between two others comes by here.
func (l *links) between(nodes []outboard.NodeID) func(from, to int) placement.Link {
	return func(from, to int) placement.Link {
		switch {
		case from == 0:
			return l.to(nodes[to])
		case to == 0:
			return l.to(nodes[from])
		}
		a, b := l.to(nodes[from]), l.to(nodes[to])
		return placement.Link{Latency: a.Latency + b.Latency, Bandwidth: min(a.Bandwidth, b.Bandwidth)}
	}
}
