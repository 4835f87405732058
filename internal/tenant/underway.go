package tenant

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// An underWay knows where the steps of this process's executions run at the moment: a
// record has a step's node when it has ended. All methods may be used by many goroutines.
type underWay struct {
	mu    sync.Mutex
	steps map[engine.ID]map[string]*outboard.NodeID // by the step's path
}

// begin notes a step until end is called.
func (u *underWay) begin(id engine.ID, path string, node outboard.NodeID) (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.steps == nil {
		u.steps = map[engine.ID]map[string]*outboard.NodeID{}
	}
	if u.steps[id] == nil {
		u.steps[id] = map[string]*outboard.NodeID{}
	}
	own := &node
	u.steps[id][path] = own
	return func() { u.end(id, path, own) }
}

// end forgets a step, unless it has begun once more.
func (u *underWay) end(id engine.ID, path string, own *outboard.NodeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.steps[id][path] != own {
		return
	}
	if delete(u.steps[id], path); len(u.steps[id]) == 0 {
		delete(u.steps, id)
	}
}

// places are where the steps of an execution run, by their paths.
func (u *underWay) places(id engine.ID) map[string]outboard.NodeID {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make(map[string]outboard.NodeID, len(u.steps[id]))
	for path, node := range u.steps[id] {
		out[path] = *node
	}
	return out
}

// locate says where an execution's steps run that have not ended, as the node knows that has
// the execution. If that does not answer they stay without.
func (t *Tenant) locate(ctx context.Context, e *engine.Execution, out *client.Execution) {
	runs := func(s *engine.Step) bool { return s.Function != "" && s.Run.Node == "" && !s.Status.Over() }
	open := 0
	for i := range e.Steps {
		if runs(&e.Steps[i]) {
			open++
		}
	}
	if open == 0 || e.Status.Over() {
		return
	}
	places, err := t.placesOf(ctx, out.Node, e.ID)
	if err != nil {
		t.log.Info("the node that runs an execution does not tell where its steps run", "execution", e.ID, "peer", out.Node, "error", err)
	}
	for i := range e.Steps {
		if s := &e.Steps[i]; runs(s) {
			out.Steps[i].Node = places[s.Path]
		}
	}
}

// placesLimit is how long the node that has an execution may take to tell where its steps run.
const placesLimit = time.Second

func (t *Tenant) placesOf(ctx context.Context, node outboard.NodeID, id engine.ID) (map[string]outboard.NodeID, error) {
	if node == t.config.Node {
		return t.underWay.places(id), nil
	}
	ctx, cancel := context.WithTimeout(ctx, placesLimit)
	defer cancel()
	return t.peers.places(ctx, node, id)
}

// places asks a node where the steps of one of its executions run.
func (p *peers) places(ctx context.Context, node outboard.NodeID, id engine.ID) (map[string]outboard.NodeID, error) {
	var places map[string]outboard.NodeID
	text, err := p.invoke(ctx, node, placesMethod, id, nil, nil)
	if err == nil {
		err = json.Unmarshal(text, &places)
	}
	return places, err
}

func (t *Tenant) placesForPeer(_ context.Context, head, _ []byte) ([]byte, any, error) {
	var id engine.ID
	if err := json.Unmarshal(head, &id); err != nil {
		return nil, nil, outboard.Errorf(outboard.Invalid, "places", "%w", err)
	}
	text, err := json.Marshal(t.underWay.places(id))
	return text, nil, err
}
