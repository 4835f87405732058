package pool

import (
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// clonedAfter is how many heartbeats in succession must find the record of another process before a
// clone is reported: a heartbeat of this node's last start may be stored late once.
const clonedAfter = 2

// A CloneWatch reports that another process runs as this node, as after its data folder was copied with
// its machine. The two replace each other's record with every heartbeat, so that each ends the other's
// leases. Its methods may be called by several goroutines, observe by one.
type CloneWatch struct {
	boot  string
	found int
	addr  atomic.Pointer[string] // of the other process, nil for none
}

// Clones returns the watch for clones of the pool's node.
func Clones(p *Pool) *CloneWatch { return p.clones }

// observe takes the node's record before a heartbeat replaces it. It reports whether a clone was found
// just now.
func (w *CloneWatch) observe(n outboard.Node, present bool) bool {
	if !present || n.Boot == w.boot {
		w.found = 0
		w.addr.Store(nil)
		return false
	}
	if w.found++; w.found < clonedAfter {
		return false
	}
	return w.addr.Swap(&n.Addr) == nil
}

// Health returns an error while another process runs as this node.
func (w *CloneWatch) Health() error {
	addr := w.addr.Load()
	if addr == nil {
		return nil
	}
	return outboard.Errorf(outboard.Conflict, "",
		"another process runs as this node at %s, with a copy of its data folder: each ends the other's leases", *addr)
}
