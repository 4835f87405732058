package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/lifecycle"
)

// A shelf has the versions of the tenant's apps that are ready here.
type shelf struct {
	registry *catalog.Catalog
	current  atomic.Pointer[map[string]*version] // what new calls take

	mu       sync.Mutex
	places   map[string]*place
	building map[versionKey]*building
	changed  chan struct{} // closed when a place changes
}

// A versionKey names a version of an app.
type versionKey struct {
	app    string
	number int
}

// building is a version that is being built: whoever needs it waits. After a restart
// hundreds of executions may need one at once, and a build takes seconds of all processors.
type building struct {
	done chan struct{}
	err  error
}

// A place is an app's.
type place struct {
	home     *home
	versions map[int]*version // ready, by number; the shelf holds each
	wanted   int              // the version that was built last, well or not: the one in force
	served   int              // the version whose routes are served
	failure  error            // why that is not ready
	tried    time.Time        // when that was found
	job      *job             // makes the version in force ready; nil: nobody does
}

// A job makes a version ready.
type job struct {
	number int
	cancel context.CancelFunc
}

func (t *Tenant) openApps(ctx context.Context) (lifecycle.Resource, error) {
	registry, err := catalog.Open(ctx, catalog.Options{State: t.state, Self: t.config.Node, Logger: t.log})
	if err != nil {
		return nil, err
	}
	t.apps = &shelf{registry: registry, places: map[string]*place{}, building: map[versionKey]*building{}, changed: make(chan struct{})}
	t.apps.current.Store(&map[string]*version{})
	return closer(func() error {
		t.apps.clear()
		return registry.Close()
	}), nil
}

// clear takes everything off the shelf.
func (s *shelf) clear() {
	s.mu.Lock()
	all := s.places
	s.places = map[string]*place{}
	s.current.Store(&map[string]*version{})
	s.mu.Unlock()
	for _, p := range all {
		p.clear()
	}
}

func (p *place) clear() {
	for _, v := range p.versions {
		_ = v.release() // its functions' ends have no news
	}
	p.home.close()
}

// current is the version of an app that takes new calls, nil for none.
func (t *Tenant) current(app string) *version { return (*t.apps.current.Load())[app] }

// missing says why an app takes no calls here.
func (t *Tenant) missing(app string) error {
	history, ok := t.apps.registry.Get(app)
	v := history.Current()
	if !ok || v == nil || v.App.Tenant != t.config.Tenant {
		return outboard.Errorf(outboard.NotFound, "", "there is no app %q here: see `outboard apps`", app)
	}
	if state, reason := t.stateOf(v); reason != "" {
		return outboard.Errorf(outboard.Unreachable, "", "app %s %s to become ready on this node: %s", app, state, reason)
	}
	return outboard.Errorf(outboard.Unreachable, "", "app %s is being made ready on this node: try again in a moment", app)
}

func (t *Tenant) placeOf(app string) *place {
	t.apps.mu.Lock()
	defer t.apps.mu.Unlock()
	p := t.apps.places[app]
	if p == nil {
		p = &place{home: newHome(t, app), versions: map[int]*version{}}
		t.apps.places[app] = p
	}
	return p
}

func recipeOf(v *catalog.Version) recipe {
	return recipe{number: v.Number, spec: &v.App, file: v.File, files: v.Files}
}

// keptVersions is how many versions of an app stay ready, for executions that began
// with them. What is older is built again when it is asked for.
const keptVersions = 2

// publish lets new calls take what is on the shelf, and takes away what is gone. Early are
// apps that are not there yet whose messages and times wait for them here.
func (t *Tenant) publish(there map[string]bool, early []*catalog.Version) {
	s := t.apps
	s.mu.Lock()
	current := map[string]*version{}
	var gone []*version
	var ended []*place
	for name, p := range s.places {
		if !there[name] {
			delete(s.places, name)
			ended = append(ended, p)
			if p.job != nil {
				p.job.cancel()
			}
			continue
		}
		if v := p.inForce(); v != nil {
			current[name] = v
		}
		gone = append(gone, p.outdated()...)
	}
	s.current.Store(&current)
	s.mu.Unlock()
	if err := t.gateway.SetApps(append(t.routes(current), t.waiting(early)...)); err != nil {
		t.log.Error("the apps' routes can't be served", "error", err)
	}
	s.mu.Lock()
	for name, v := range current {
		s.places[name].served = v.number
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	t.running.Go(func() {
		for _, v := range gone {
			_ = v.release() // its functions' ends have no news
		}
		for _, p := range ended {
			p.clear()
		}
	})
}

// inForce is the version that takes new calls: the wanted one or, while that is not
// ready, the newest.
func (p *place) inForce() *version {
	if v := p.versions[p.wanted]; v != nil || len(p.versions) == 0 {
		return v
	}
	return p.versions[slices.Max(slices.Collect(maps.Keys(p.versions)))]
}

// outdated takes the versions away that are too many.
func (p *place) outdated() []*version {
	numbers := slices.Sorted(maps.Keys(p.versions))
	var gone []*version
	for _, n := range numbers[:max(0, len(numbers)-keptVersions)] {
		gone = append(gone, p.versions[n])
		delete(p.versions, n)
	}
	return gone
}

// versionOf returns a version of an app, held for the caller, who ends it: number 0
// is the one in force.
func (t *Tenant) versionOf(ctx context.Context, app string, number int) (*version, error) {
	if v := t.current(app); v != nil && (number == 0 || v.number == number) && v.hold() {
		return v, nil
	}
	t.apps.mu.Lock()
	p := t.apps.places[app]
	var v *version
	if p != nil && number != 0 {
		v = p.versions[number]
	}
	t.apps.mu.Unlock()
	if v != nil && v.hold() {
		return v, nil
	}
	return t.rebuild(ctx, app, number)
}

// ended gives a version back.
func (t *Tenant) ended(v *version) { _ = v.release() } // its functions' ends have no news

// ready has a version built and on its app's place. Of those who want it at the same time
// one builds it.
func (t *Tenant) ready(ctx context.Context, p *place, v *catalog.Version) error {
	key := versionKey{v.App.Name, v.Number}
	for {
		t.apps.mu.Lock()
		if p.versions[v.Number] != nil {
			t.apps.mu.Unlock()
			return nil
		}
		b := t.apps.building[key]
		if b == nil {
			b = &building{done: make(chan struct{})}
			t.apps.building[key] = b
			t.apps.mu.Unlock()
			return t.buildFor(ctx, p, v, b)
		}
		t.apps.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.done:
		}
		if b.err != nil && !errors.Is(b.err, context.Canceled) && !errors.Is(b.err, context.DeadlineExceeded) {
			return b.err
		}
	}
}

// buildFor builds a version for all who wait.
func (t *Tenant) buildFor(ctx context.Context, p *place, v *catalog.Version, b *building) error {
	built, problems, err := t.build(ctx, recipeOf(v), p.home)
	if err == nil && len(problems) > 0 {
		err = manifest.Problems(problems)
	}
	t.apps.mu.Lock()
	defer t.apps.mu.Unlock()
	if err == nil && t.apps.places[v.App.Name] != p {
		t.running.Go(func() { _ = built.release() })
		err = outboard.Errorf(outboard.NotFound, "", "app %s was removed", v.App.Name)
	}
	if err == nil {
		p.versions[v.Number] = built
	}
	b.err = err
	delete(t.apps.building, versionKey{v.App.Name, v.Number})
	close(b.done)
	return err
}

// rebuild makes an old version ready again, for an execution that began with it.
func (t *Tenant) rebuild(ctx context.Context, app string, number int) (*version, error) {
	history, ok := t.apps.registry.Get(app)
	if !ok {
		return nil, outboard.Errorf(outboard.NotFound, "", "there is no app %s: deploy it", app)
	}
	for i := range history.Versions {
		if v := &history.Versions[i]; v.Number == number || number == 0 && v == history.Current() {
			return t.rebuilt(ctx, v)
		}
	}
	return nil, outboard.Errorf(outboard.NotFound, "", "version %d of app %s is not kept any more", number, app)
}

// rebuilt returns a version, held for the caller, whenever it has been taken off the
// shelf meanwhile.
func (t *Tenant) rebuilt(ctx context.Context, v *catalog.Version) (*version, error) {
	for {
		p := t.placeOf(v.App.Name)
		if err := t.ready(ctx, p, v); outboard.KindOf(err) == outboard.NotFound {
			// A file that no node in reach has is no reason to give an execution up.
			return nil, outboard.Errorf(outboard.Unreachable, "", "version %d of app %s: %w", v.Number, v.App.Name, err)
		} else if err != nil {
			return nil, err
		}
		t.apps.mu.Lock()
		have := p.versions[v.Number]
		t.apps.mu.Unlock()
		if have != nil && have.hold() {
			return have, nil
		}
	}
}

// list names what a map has.
func list[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// awaitVersion waits until this node serves a version of an app, or can't.
func (t *Tenant) awaitVersion(ctx context.Context, app string, number int) error {
	for {
		t.apps.mu.Lock()
		p, changed := t.apps.places[app], t.apps.changed
		var err error
		done := p != nil && (p.served >= number || p.wanted >= number && p.failure != nil)
		if done {
			err = p.failure
		}
		t.apps.mu.Unlock()
		if done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until app %s is served here: %w", app, ctx.Err())
		case <-changed:
		}
	}
}

// awaitServed waits until this node serves an app, whichever version, or can't. The error says
// why it does not.
func (t *Tenant) awaitServed(ctx context.Context, app string) error {
	return t.awaitPlace(ctx, app, func(p *place) bool { return p.served > 0 || p.failure != nil })
}

// handPatience is how long who calls by hand, or another function, waits for an app.
const handPatience = time.Minute

// awaitCurrent is current, of an app that is made ready when it is.
func (t *Tenant) awaitCurrent(ctx context.Context, app string) (*version, error) {
	if v := t.current(app); v != nil {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, handPatience)
	defer cancel()
	if err := t.awaitServed(ctx, app); err != nil {
		return nil, err
	}
	if v := t.current(app); v != nil {
		return v, nil
	}
	return nil, t.missing(app) // it is gone already
}

// awaitPlace waits until what an app has here is as wanted.
func (t *Tenant) awaitPlace(ctx context.Context, app string, done func(*place) bool) error {
	for {
		heard := t.apps.registry.Changed()
		if outboard.KindOf(t.missing(app)) == outboard.NotFound {
			return t.missing(app)
		}
		t.apps.mu.Lock()
		p, changed := t.apps.places[app], t.apps.changed
		there, served := p != nil && done(p), p != nil && p.served > 0
		t.apps.mu.Unlock()
		if there && served {
			return nil
		}
		if there {
			return t.missing(app)
		}
		select {
		case <-ctx.Done():
			return t.missing(app)
		case <-changed:
		case <-heard:
		}
	}
}

// arenaSize is how large the arenas of an app's executions are: all of its versions
// that are ready here can map them.
func (t *Tenant) arenaSize(app string) outboard.Bytes {
	t.apps.mu.Lock()
	defer t.apps.mu.Unlock()
	size := defaultArena
	if p := t.apps.places[app]; p != nil {
		for _, v := range p.versions {
			size = min(size, v.arenaSize())
		}
	}
	return size
}
