package serve

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// Keep determines how long a model stays loaded after its last use, on all nodes that have loaded
// it: 0 unloads it, and a negative duration keeps it. A positive one replaces that of the model's
// configuration until the model is unloaded.
func Keep(ctx context.Context, s *Server, name string, idle time.Duration) error {
	v, err := s.version(name, "")
	if err != nil {
		return err
	}
	here, nodes := awaitLoaded(ctx, s, v.Name, idle == 0)
	var failed []error
	if here {
		failed = append(failed, s.KeepHere(v.Name, idle))
	}
	for _, node := range nodes {
		failed = append(failed, s.opts.Peers.Keep(ctx, node, v.Name, idle))
	}
	return errors.Join(failed...)
}

// awaitLoaded reports where a model is loaded or being loaded: on this node, and on which others. A
// node reports a model that it has just loaded with a delay, so awaitLoaded waits for the report if
// the model seems to be loaded on no node, unless unloaded is set.
func awaitLoaded(ctx context.Context, s *Server, name string, unloaded bool) (here bool, nodes []outboard.NodeID) {
	limit := time.NewTimer(reportLimit)
	defer limit.Stop()
	for {
		changed := s.opts.Peers.Changed()
		here, nodes = isLoaded(s, name), nil
		for _, r := range s.opts.Peers.Reports() {
			loaded := func(m ModelReport) bool { return m.Name == name && m.State != StateUnloaded }
			if r.Node != s.opts.Self && slices.ContainsFunc(r.Models, loaded) {
				nodes = append(nodes, r.Node)
			}
		}
		if here || unloaded || len(nodes) > 0 {
			return here, nodes
		}
		select {
		case <-changed:
		case <-limit.C:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}

// isLoaded reports whether a content of a model is loaded, or being loaded, on this node.
func isLoaded(s *Server, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.loaded {
		if key.name == name {
			return true
		}
	}
	return false
}

// KeepHere is Keep for this node alone.
func (s *Server) KeepHere(name string, idle time.Duration) error {
	if idle == 0 {
		return s.Unload(name)
	}
	v, err := s.version(name, "")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, i := range s.loaded {
		if key.name == v.Name {
			i.mu.Lock()
			i.keep = idle
			i.mu.Unlock()
		}
	}
	return nil
}

// idleLimit returns how long an instance stays loaded after its last use, negative for ever. mu must
// be held.
func idleLimit(i *instance) time.Duration {
	return cmp.Or(i.keep, time.Duration(i.spec.Config.Idle), defaultIdle)
}
