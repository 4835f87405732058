package serve

import (
	"context"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/queue"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// ModelStats are the counts of one version on this node.
type ModelStats struct {
	Name    string
	Version int
	queue.Stats
}

// Stats returns the counts of the models that are loaded on this node.
func (s *Server) Stats() []ModelStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []ModelStats
	for _, i := range s.loaded {
		if !isDone(i.ready) || i.err != nil {
			continue
		}
		i.mu.Lock()
		q := i.queue
		i.mu.Unlock()
		list = append(list, ModelStats{Name: i.spec.Name, Version: i.version, Stats: q.Stats()})
	}
	return list
}

// An Index is a model of the repository with its state on this node or, where another node has it
// ready, there.
type Index struct {
	Version repository.Version
	State   State
	Reason  string
	Node    outboard.NodeID
}

// Index returns all models.
func (s *Server) Index() []Index {
	var list []Index
	for _, m := range s.opts.Repository.List() {
		list = append(list, indexOf(s, m.Current()))
	}
	return list
}

// indexOf returns the best state that a version has on any node.
func indexOf(s *Server, v *repository.Version) Index {
	x := Index{Version: *v, State: StateUnloaded}
	for _, c := range s.Explain(v) {
		if c.State == StateReady || x.Node == "" {
			x.State, x.Node = c.State, c.Node
			if c.Excluded {
				x.Reason = c.Why
			}
		}
		if c.State == StateReady {
			break
		}
	}
	return x
}

// Ready reports whether a model can take requests: it is loaded, or it is loaded on demand and has
// not failed.
func (s *Server) Ready(name, version string) (bool, error) {
	v, err := s.version(name, version)
	if err != nil {
		return false, err
	}
	return len(s.candidates(v)) > 0, nil
}

// A Description is what a model takes and returns.
type Description struct {
	Version  *repository.Version
	Versions []string
	Info     engine.Info
}

// describeLimit is how long a model that isn't loaded may take to be described.
const describeLimit = time.Minute

// Describe describes a model, which is loaded if it isn't.
func (s *Server) Describe(ctx context.Context, name, version string) (*Description, error) {
	v, err := s.version(name, version)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeLimit, errTimeout(v.Name, describeLimit))
	defer cancel()
	i, err := s.acquire(ctx, v, version != "")
	if err != nil {
		return nil, err
	}
	defer i.release()
	d := &Description{Version: v, Info: i.currentInfo()}
	m, err := s.opts.Repository.Get(name)
	if err != nil {
		return nil, err
	}
	for n := range m.Versions {
		d.Versions = append(d.Versions, strconv.Itoa(m.Versions[n].Number))
	}
	return d, nil
}

func (i *instance) currentInfo() engine.Info {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.info
}
