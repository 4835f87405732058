package serve

import (
	"context"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// Text is a model for text on a node of the pool.
type Text struct {
	engine.TextModel
	// Version is the one that serves, Node where it does.
	Version *repository.Version
	Node    outboard.NodeID
}

// OpenText returns the model for text with a name on the best node, and a function that the caller
// calls when it needs the model no more. Nodes of which the caller knows that they failed are
// excluded.
func (s *Server) OpenText(ctx context.Context, name, version string, exclude ...outboard.NodeID) (*Text, func(), error) {
	v, err := s.version(name, version)
	if err != nil {
		return nil, nil, err
	}
	var last error
	for _, c := range s.candidates(v) {
		if slices.Contains(exclude, c.Node) {
			continue
		}
		if c.Node == s.opts.Self {
			m, release, err := s.TextHere(ctx, name, version)
			if err == nil || !isRetriable(ctx, err) {
				return &Text{m, v, c.Node}, release, err
			}
			last = err
			continue
		}
		info, err := s.opts.Peers.Describe(ctx, c.Node, v.Name, v.Number)
		if err == nil && info.Vocabulary == 0 && len(info.Outputs) > 0 {
			err = errNoText(v.Name)
		}
		if err == nil {
			return &Text{s.opts.Peers.Text(c.Node, v.Name, v.Number, info), v, c.Node}, func() {}, nil
		}
		if !isRetriable(ctx, err) {
			return nil, nil, err
		}
		last = err
	}
	if last == nil {
		last = errNoNode(v.Name)
	}
	return nil, nil, last
}

// TextHere returns a model for text on this node, which is loaded if it isn't.
func (s *Server) TextHere(ctx context.Context, name, version string) (engine.TextModel, func(), error) {
	v, err := s.version(name, version)
	if err != nil {
		return nil, nil, err
	}
	i, err := s.acquire(ctx, v, version != "")
	if err != nil {
		return nil, nil, err
	}
	if err := i.ensureRunning(ctx); err != nil {
		i.release()
		return nil, nil, err
	}
	i.mu.Lock()
	w := i.worker
	i.mu.Unlock()
	if !w.Text() {
		i.release()
		return nil, nil, errNoText(v.Name)
	}
	return w, i.release, nil
}

func errNoText(name string) error {
	return outboard.Errorf(outboard.Invalid, "", "the model %s is for tensors, not for text", name)
}

// Await waits until this node knows a version of a model.
func (s *Server) Await(ctx context.Context, name string, version int) error {
	return s.opts.Repository.Await(ctx, name, version)
}
