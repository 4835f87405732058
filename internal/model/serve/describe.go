package serve

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/queue"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// ModelStats are the counts of one version of a model on this node.
type ModelStats struct {
	Name    string
	Version int
	queue.Stats
	// Text counts generations, for a model for text.
	Text TextCounts
	// Load is the last report on a model for text, nil before the first.
	Load *TextLoad
}

// Stats returns the counts of the models loaded on this node.
func (s *Server) Stats() []ModelStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []ModelStats
	for _, i := range s.loaded {
		if !isDone(i.ready) || i.err != nil {
			continue
		}
		i.mu.Lock()
		q, gate, load := i.queue, i.gate, i.text
		i.mu.Unlock()
		m := ModelStats{Name: i.spec.Name, Version: i.version(), Stats: q.Stats(), Load: load}
		addBypassed(&m.Stats, i.bypasses.counts())
		if gate != nil {
			m.Text = gate.stats()
		}
		list = append(list, m)
	}
	return list
}

// An Index is a model of the repository with its state on this node or, if another node has it
// ready, on that node.
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

// indexOf returns a version with the best state that it has on any node.
func indexOf(s *Server, v *repository.Version) Index {
	all := s.Explain(v)
	if len(all) == 0 {
		return Index{Version: *v, State: StateUnloaded}
	}
	best := slices.MinFunc(all, func(a, b Candidate) int { return cmp.Compare(a.rank(), b.rank()) })
	x := Index{Version: *v, State: best.State, Node: best.Node, Reason: best.Failure}
	if best.Excluded {
		x.Reason = best.Why
	}
	return x
}

// rank orders candidates by what their state says of the model: a node that can load it before one
// that failed to, and that one before a node that may not load it.
func (c *Candidate) rank() int {
	switch {
	case c.State == StateReady:
		return 0
	case c.State == StateLoading:
		return 1
	case !c.Excluded:
		return 2
	case c.State == StateFailed:
		return 3
	}
	return 4
}

// Ready reports whether a model can serve requests: it is loaded, or it is loaded on demand and has
// not failed.
func (s *Server) Ready(name, version string) (bool, error) {
	v, err := s.version(name, version)
	if err != nil {
		return false, err
	}
	return len(s.candidates(v, version != "")) > 0, nil
}

// A Description describes the inputs and outputs of a version, and lists the kept versions.
type Description struct {
	Version  *repository.Version
	Versions []string
	Info     engine.Info
}

// describeLimit bounds the time to describe a model that isn't loaded.
const describeLimit = time.Minute

// Describe returns the description of a model from the best node for it. That node loads the model
// if it isn't loaded.
func (s *Server) Describe(ctx context.Context, name, version string) (*Description, error) {
	v, err := s.version(name, version)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeLimit, errTimeout(v.Name, describeLimit))
	defer cancel()
	info, err := s.infoFromBest(ctx, v, version)
	if err != nil {
		return nil, err
	}
	d := &Description{Version: v, Info: info}
	m, err := s.opts.Repository.Get(name)
	if err != nil {
		return nil, err
	}
	for n := range m.Versions {
		d.Versions = append(d.Versions, strconv.Itoa(m.Versions[n].Number))
	}
	return d, nil
}

// infoFromBest returns the description of a version from the nodes that can serve it, tried in the
// order of preference.
func (s *Server) infoFromBest(ctx context.Context, v *repository.Version, version string) (engine.Info, error) {
	var last error
	number := 0
	if version != "" {
		number = v.Number
	}
	for _, c := range s.candidates(v, version != "") {
		var info engine.Info
		var err error
		if c.Node == s.opts.Self {
			info, _, err = s.InfoHere(ctx, v.Name, version)
		} else {
			info, _, err = s.opts.Peers.Describe(ctx, c.Node, v.Name, number)
		}
		if err == nil || !isRetriable(ctx, err) {
			return info, err
		}
		last = err
	}
	return engine.Info{}, cmp.Or(last, errNoNode(v.Name))
}

// InfoHere returns the description of a model on this node, which loads it if it isn't loaded, and
// the number of the version that it describes: with "", the one that serves at present.
func (s *Server) InfoHere(ctx context.Context, name, version string) (engine.Info, int, error) {
	v, err := s.version(name, version)
	if err != nil {
		return engine.Info{}, 0, err
	}
	// A description that took a turn of a canary would leave one version to a client that asks for
	// the description before each request.
	i, err := s.acquire(ctx, v, version != "" || isServing(s, v))
	if err != nil {
		return engine.Info{}, 0, err
	}
	defer i.release()
	return i.currentInfo(), i.version(), nil
}

// isServing reports whether the content of a version serves requests.
func isServing(s *Server, v *repository.Version) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return isUsable(s.loaded[keyOf(v)])
}

func (i *instance) currentInfo() engine.Info {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.info
}
