package tenant

import (
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// stepNodes holds the nodes on which the steps in progress of this process's executions run: the
// log names a step's node only when the step has ended. All methods may be called by several
// goroutines.
type stepNodes struct {
	mu    sync.Mutex
	steps map[engine.ID]map[string]*outboard.NodeID // by the step's path
}

// add records the node of a step until remove is called.
func (s *stepNodes) add(id engine.ID, path string, node outboard.NodeID) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps == nil {
		s.steps = map[engine.ID]map[string]*outboard.NodeID{}
	}
	if s.steps[id] == nil {
		s.steps[id] = map[string]*outboard.NodeID{}
	}
	own := &node
	s.steps[id][path] = own
	return func() { s.remove(id, path, own) }
}

// remove drops a step, unless it has begun once more.
func (s *stepNodes) remove(id engine.ID, path string, own *outboard.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps[id][path] != own {
		return
	}
	if delete(s.steps[id], path); len(s.steps[id]) == 0 {
		delete(s.steps, id)
	}
}

// of returns the nodes of an execution's steps in progress, by their paths.
func (s *stepNodes) of(id engine.ID) map[string]outboard.NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]outboard.NodeID, len(s.steps[id]))
	for path, node := range s.steps[id] {
		out[path] = *node
	}
	return out
}
