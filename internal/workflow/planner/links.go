package planner

import (
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// Links estimates the latency and bandwidth to other nodes from the calls that were made
// there. The zero value assumes a local network.
type Links struct {
	mu    sync.Mutex
	known map[outboard.NodeID]placement.Link
}

const (
	assumedLatency                  = 500 * time.Microsecond
	assumedBandwidth outboard.Bytes = 100 << 20
	// bulk is the size from which the duration of a call shows the bandwidth.
	bulk outboard.Bytes = 1 << 20
	// smoothing is the inverse weight of a call in the moving averages.
	smoothing = 8
)

// Record adds a call: the bytes of request and response together, and how long the call took
// beside the function's own time.
func (l *Links) Record(node outboard.NodeID, size outboard.Bytes, took time.Duration) {
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
		k = placement.Link{Latency: assumedLatency, Bandwidth: assumedBandwidth}
	}
	if size < bulk {
		k.Latency += (took - k.Latency) / smoothing
	} else if took > k.Latency {
		now := outboard.Bytes(float64(size) / (took - k.Latency).Seconds())
		k.Bandwidth += (now - k.Bandwidth) / smoothing
	}
	l.known[node] = k
}

// to returns the link to a node, both directions as one.
func (l *Links) to(node outboard.NodeID) placement.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k, ok := l.known[node]; ok {
		return k
	}
	return placement.Link{Latency: assumedLatency, Bandwidth: assumedBandwidth}
}

// between returns the link between two of the nodes, of which the first is this one: values
// between two others are relayed by this node.
func (l *Links) between(nodes []outboard.NodeID) func(from, to int) placement.Link {
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
