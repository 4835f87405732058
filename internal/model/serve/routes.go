package serve

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// keyOf returns the key of a version's content.
func keyOf(v *repository.Version) contentKey {
	return contentKey{v.Name, v.Content()}
}

var errStopping = outboard.Errorf(outboard.Unreachable, "", "this node is stopping")

// instanceOf returns the instance of a version, and begins to load it if there is none. mu must be
// held.
func (s *Server) instanceOf(v *repository.Version) (*instance, error) {
	key := keyOf(v)
	if i := s.loaded[key]; i != nil {
		i.number.Store(max(i.number.Load(), int64(v.Number)))
		return i, nil
	}
	switch {
	case s.closed:
		return nil, errStopping
	case !mayLoad(s, v):
		return nil, outboard.Errorf(outboard.Unreachable, "", "the configuration of the model %s does not let this node load version %d", v.Name, v.Number)
	}
	i := &instance{
		server: s, spec: *v, key: key, ready: make(chan struct{}), used: time.Now(),
		dir: filepath.Join(s.opts.Dir, fmt.Sprintf("%s-%s-%d", v.Name, key.content, time.Now().UnixNano())),
	}
	i.life, i.end = context.WithCancel(s.life)
	i.number.Store(int64(v.Number))
	s.loaded[key] = i
	s.serving.Go(func() {
		i.load(i.life)
		recordSpeeds(s, i) // before a client that waits unloads the model, and asks why it was not loaded
		close(i.ready)
		announce(s)
		if i.err == nil {
			return
		}
		again := awaitRetry(s, i)
		s.drop(i)
		if again {
			_ = s.Load(s.life, i.spec.Name, "") // the error is logged, and reported
		}
	})
	return i, nil
}

// drop removes an instance from the loaded ones and from the routes.
func (s *Server) drop(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded[i.key] == i {
		delete(s.loaded, i.key)
	}
	for name, r := range s.routes {
		if r.previous == i {
			r.previous = nil
		}
		if r.current == i {
			r.current, r.previous = r.previous, nil
		}
		if r.current == nil {
			delete(s.routes, name)
		}
	}
}

// acquire returns the instance for a request, loaded and counted as in use. exact requires the
// content of v; otherwise the version that serves at present is used, which may be an earlier one
// while v is being loaded.
func (s *Server) acquire(ctx context.Context, v *repository.Version, exact bool) (*instance, error) {
	for {
		i, err := tryAcquire(ctx, s, v, exact)
		switch {
		case err != nil && i != nil && outboard.KindOf(err) != outboard.Invalid:
			// Another node may be able to load it.
			return nil, outboard.Errorf(outboard.Unreachable, "", "%w", err)
		case err != nil:
			return nil, err
		case i != nil:
			return i, nil
		}
		if _, err := s.opts.Repository.Get(v.Name); err != nil {
			return nil, err // the model was removed
		}
	}
}

// tryAcquire is acquire, but returns nil without an error if the instance was unloaded in the
// meantime, and an instance that could not be loaded, unused, with its error.
func tryAcquire(ctx context.Context, s *Server, v *repository.Version, exact bool) (*instance, error) {
	i, err := s.pick(v, exact)
	if err != nil {
		return nil, err
	}
	select {
	case <-i.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	i.acquire()
	switch {
	case i.ended.Load():
		i.release()
		s.drop(i)
		return nil, nil
	case i.err != nil:
		i.release()
		return i, i.err
	}
	return i, nil
}

// pick chooses the instance for a request.
func (s *Server) pick(v *repository.Version, exact bool) (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.routes[v.Name]
	if r == nil || exact {
		i, err := s.instanceOf(v)
		if err != nil {
			return nil, err
		}
		if r == nil && (!exact || isInForce(s, v)) { // a roll-out then replaces the instance
			r = &route{current: i}
			s.routes[v.Name] = r
			addCanary(s, r, v)
		}
		if exact {
			return i, nil
		}
	}
	r.requests++
	if r.canary > 0 && isUsable(r.previous) && (isAbandoned(s, v) || !isForCanary(r.requests, r.canary)) {
		return r.previous, nil
	}
	if !isUsable(r.current) && isUsable(r.previous) {
		return r.previous, nil
	}
	return r.current, nil
}

// isUsable reports whether an instance has been loaded and serves requests.
func isUsable(i *instance) bool {
	return i != nil && isDone(i.ready) && i.err == nil && !i.ended.Load()
}

// addCanary sets the share of a version that gets only some of the requests. mu must be held.
func addCanary(s *Server, r *route, v *repository.Version) {
	r.canary = 0
	if before := precedingOf(s, v); before != nil {
		if i, err := s.instanceOf(before); err == nil {
			r.previous, r.canary = i, v.Canary
		}
	}
}

// precedingOf returns the version that shares the requests with v, nil if v is no canary.
func precedingOf(s *Server, v *repository.Version) *repository.Version {
	if !isCanary(v) {
		return nil
	}
	return beforeCanary(s, v)
}

// reconcile follows the repository: it switches loaded models to new versions, and unloads models
// that are removed or were unused for long.
func (s *Server) reconcile() {
	ticker := time.NewTicker(idleInterval)
	defer ticker.Stop()
	for {
		changed := s.opts.Repository.Changed()
		s.update()
		unloadIdle(s)
		s.sequences.endIdle(time.Now().Add(-sequenceIdle))
		select {
		case <-s.life.Done():
			return
		case <-changed:
		case <-ticker.C:
		}
	}
}

// idleInterval is the interval between checks for models that were unused for long.
const idleInterval = 2 * time.Second

// mayLoad reports whether the configuration of a version lets this node load it.
func mayLoad(s *Server, v *repository.Version) bool {
	return whyExcluded(v, &Report{Node: s.opts.Self, Servers: s.opts.Servers}) == ""
}

// isInForce reports whether the content of a version is in force.
func isInForce(s *Server, v *repository.Version) bool {
	m, err := s.opts.Repository.Get(v.Name)
	return err == nil && keyOf(m.Current()) == keyOf(v)
}

// update brings the routes in line with the repository.
func (s *Server) update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// With mu held: a model that a request loads is in the list.
	current := map[string]*repository.Version{}
	for _, m := range s.opts.Repository.List() {
		v := m.Current()
		current[v.Name] = v
	}
	for name, r := range s.routes {
		v := current[name]
		switch {
		case v == nil || !mayLoad(s, v):
			delete(s.routes, name)
			delete(s.canaries, name)
			s.retire(r.current)
			s.retire(r.previous)
		case r.current.key == keyOf(v):
			r.current.number.Store(int64(v.Number))
			s.finishSwitch(r, v)
		default:
			s.beginSwitch(r, v)
		}
	}
	for key, i := range s.loaded {
		if current[key.name] == nil {
			s.retire(i)
		}
	}
	endBypasses(s)
}

// beginSwitch loads a new version, which replaces the current one when it is ready. mu must be
// held.
func (s *Server) beginSwitch(r *route, v *repository.Version) {
	next, err := s.instanceOf(v)
	if err != nil {
		return
	}
	// The version that serves continues until the new one is ready, even if there was another
	// between them that was not loaded, or not yet. A canary does not get all requests meanwhile.
	old, unused := r.current, r.previous
	if (!isUsable(old) || r.canary > 0) && isUsable(unused) {
		old, unused = unused, old
	}
	if unused != next && unused != old {
		s.retire(unused)
	}
	if old == next { // a roll-back to the version that still serves
		old = nil
	}
	r.previous, r.current, r.canary = old, next, 0
	if before := precedingOf(s, v); before != nil && old != nil && old.key == keyOf(before) {
		r.canary = v.Canary // from its first request on
	}
	s.serving.Go(func() {
		select {
		case <-next.ready:
			s.update()
		case <-s.life.Done():
		}
	})
}

// finishSwitch retires the preceding version, or keeps it for a canary. mu must be held.
func (s *Server) finishSwitch(r *route, v *repository.Version) {
	if !isDone(r.current.ready) || r.current.err != nil {
		return // the preceding version continues to serve
	}
	addCanary(s, r, v)
	if r.canary == 0 && r.previous != nil {
		s.retire(r.previous)
		r.previous = nil
	}
}

// drainLimit bounds the drain of a retired version's requests.
const drainLimit = 5 * time.Minute

// retire unloads an instance when its requests have ended. mu must be held.
func (s *Server) retire(i *instance) {
	if i == nil || s.loaded[i.key] != i {
		return
	}
	delete(s.loaded, i.key)
	s.serving.Go(func() { i.unload(s.life, drainLimit) })
}

// defaultIdle is how long an unused model stays loaded.
const defaultIdle = 15 * time.Minute

// unloadIdle unloads the models that were unused for long.
func unloadIdle(s *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unused := map[*instance]bool{}
	for _, i := range s.loaded {
		if isUnused(i) {
			unused[i] = true
		}
	}
	for name, r := range s.routes {
		if unused[r.current] && (r.previous == nil || unused[r.previous]) {
			delete(s.routes, name)
			continue
		}
		// A canary and the version before it are unloaded together: either one would be loaded again
		// while the other one gets requests.
		delete(unused, r.current)
		delete(unused, r.previous)
	}
	for i := range unused {
		s.retire(i)
	}
}

// isUnused reports whether an instance was unused for as long as it may be.
func isUnused(i *instance) bool {
	if i.bypasses.wasUsed() {
		i.acquire()
		i.release()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	idle := idleLimit(i)
	return isDone(i.ready) && i.users == 0 && idle > 0 && time.Since(i.used) > idle
}

// Load loads a version of a model on this node, "" for the one in force, and waits until it is
// ready.
func (s *Server) Load(ctx context.Context, name, version string) error {
	v, err := s.version(name, version)
	if err != nil {
		return err
	}
	i, err := tryAcquire(ctx, s, v, true)
	for err == nil && i == nil {
		now, gone := s.version(name, version)
		switch {
		case gone != nil:
			return gone
		case keyOf(now) != keyOf(v):
			return outboard.Errorf(outboard.Conflict, "load "+v.Name, "version %d was replaced by version %d before it was loaded", v.Number, now.Number)
		}
		i, err = tryAcquire(ctx, s, v, true)
	}
	if err != nil {
		return err
	}
	defer i.release()
	if version == "" {
		s.update() // so that the next request here uses it
		_, err = s.pick(v, false)
	}
	return err
}

// Unload unloads a model on this node. The next request loads it again.
func (s *Server) Unload(name string) error {
	v, err := s.version(name, "")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.routes[v.Name]; r != nil {
		delete(s.routes, v.Name)
	}
	for key, i := range s.loaded {
		if key.name == v.Name {
			s.retire(i)
		}
	}
	announce(s)
	return nil
}
