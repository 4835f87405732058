package pool

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// admissionPrefix precedes the names of nodes that were admitted by a token. Only nodes that keep a
// copy of the state write these records: a node can't hide by which one it was admitted.
const admissionPrefix = "admissions/"

// storedAdmission is the value stored under the name of an admitted node.
type storedAdmission struct {
	// By are the node that made the token and, if it is another one, the node at which the token was
	// presented: either of them could admit a node of its own choice.
	By []outboard.NodeID `json:"by"`
	At time.Time         `json:"at"`
}

// recordAdmission records that nodes have admitted a node.
func (a admission) recordAdmission(ctx context.Context, name outboard.NodeID, by ...outboard.NodeID) error {
	slices.Sort(by)
	text, err := json.Marshal(storedAdmission{By: slices.Compact(by), At: time.Now().UTC()})
	if err != nil {
		return err
	}
	_, err = a.p.state.Put(ctx, admissionPrefix+string(name), text, 0)
	return err
}

// admissions are the nodes that have admitted each node of the pool, also of those that are down.
type admissions map[outboard.NodeID][]outboard.NodeID

// apply applies an entry of the table and reports whether it changed the admissions.
func (a admissions) apply(name outboard.NodeID, e state.Entry) (changed bool, err error) {
	var stored storedAdmission
	if !e.Deleted {
		err = json.Unmarshal(e.Value, &stored)
	}
	changed = !slices.Equal(a[name], stored.By)
	if a[name] = stored.By; len(stored.By) == 0 {
		delete(a, name)
	}
	return changed, err
}

// from returns the nodes that a node has admitted, and those that these have admitted, sorted.
func (a admissions) from(node outboard.NodeID) []outboard.NodeID {
	found := map[outboard.NodeID]bool{node: true}
	var all []outboard.NodeID
	for more := true; more; {
		more = false
		for name, by := range a {
			if !found[name] && slices.ContainsFunc(by, func(n outboard.NodeID) bool { return found[n] }) {
				found[name], more = true, true
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// AdmittedBy returns the nodes that a node has admitted to the pool, also those that are down, and
// those that these have admitted. They remain members after the node was removed.
func AdmittedBy(p *Pool, node outboard.NodeID) []outboard.NodeID {
	p.view.mu.Lock()
	defer p.view.mu.Unlock()
	return p.view.admitted.from(node)
}
