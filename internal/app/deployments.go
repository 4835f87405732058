package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
)

// Loading is an app of which no version is ready.
type Loading struct {
	Spec *manifest.App
	// Await waits until a version serves, or returns why none ever will.
	Await func(context.Context) error
}

// Router publishes the routes and triggers of apps.
type Router[F Function, W any] interface {
	// Publish replaces all routes. The messages and schedules of apps that are loading are
	// accepted and wait.
	Publish(serving []*Version[F, W], loading []Loading) error
}

// Options of Deployments.
type Options[F Function, W any] struct {
	Registry *catalog.Catalog
	Tenant   string
	Files    Files
	Planes   Planes[F, W]
	Router   Router[F, W]
	// Survey asks all nodes for their Progress. Members returns a channel that is closed when nodes
	// join or leave.
	Survey  func(context.Context) *Survey
	Members func() <-chan struct{}
	Logger  *slog.Logger
}

// Deployments has the versions of a tenant's apps that are ready on this node.
type Deployments[F Function, W any] struct {
	opts    Options[F, W]
	log     *slog.Logger
	current atomic.Pointer[map[string]*Version[F, W]] // the versions that new calls enter
	closing sync.WaitGroup                            // versions that close

	mu       sync.Mutex
	entries  map[string]*entry[F, W]
	building map[versionKey]*flight
	changed  chan struct{} // closed when an entry changes
}

// versionKey names a version of an app.
type versionKey struct {
	app    string
	number int
}

// flight is a version that is being built: all callers that need it wait for one build. After a
// restart hundreds of executions may need a version, and a build takes seconds of all processors.
type flight struct {
	done chan struct{}
	err  error
}

// entry is the state of one app.
type entry[F Function, W any] struct {
	resources Resources
	versions  map[int]*Version[F, W] // ready, by number; Deployments has a reference to each
	built     int                    // the version in force that was built last, with success or not
	serving   int                    // the version whose routes are published
	failure   error                  // why the version built last is not ready
	failed    time.Time              // when the failure was found
	job       *job                   // builds the version in force; nil: nothing is being built
}

// job is a build of the version in force.
type job struct {
	number int
	cancel context.CancelFunc
}

// New returns Deployments that have nothing ready until Run runs.
func New[F Function, W any](o Options[F, W]) *Deployments[F, W] {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Deployments[F, W]{
		opts: o, log: o.Logger, entries: map[string]*entry[F, W]{}, building: map[versionKey]*flight{}, changed: make(chan struct{}),
	}
	c.current.Store(&map[string]*Version[F, W]{})
	return c
}

// Close closes all versions after the calls in progress.
func (c *Deployments[F, W]) Close() error {
	c.mu.Lock()
	all := c.entries
	c.entries = map[string]*entry[F, W]{}
	c.current.Store(&map[string]*Version[F, W]{})
	c.mu.Unlock()
	for _, e := range all {
		e.close()
	}
	c.closing.Wait()
	return nil
}

func (e *entry[F, W]) close() {
	for _, v := range e.versions {
		_ = v.Release() // a function that ended badly has been logged by its calls
	}
	e.resources.Close()
}

// Current returns the version of an app that new calls enter, nil for none.
func (c *Deployments[F, W]) Current(app string) *Version[F, W] { return (*c.current.Load())[app] }

// Select returns the current versions of the app with a name, or of all apps for "", sorted by
// name.
func (c *Deployments[F, W]) Select(name string) []*Version[F, W] {
	current := *c.current.Load()
	var all []*Version[F, W]
	for _, app := range slices.Sorted(maps.Keys(current)) {
		if name == "" || name == app {
			all = append(all, current[app])
		}
	}
	return all
}

// Unavailable returns why new calls can't enter an app here.
func (c *Deployments[F, W]) Unavailable(app string) error {
	history, ok := c.opts.Registry.Get(app)
	v := history.Current()
	if !ok || v == nil || v.App.Tenant != c.opts.Tenant {
		return outboard.Errorf(outboard.NotFound, "", "there is no app %q here: see `outboard apps`", app)
	}
	if n := c.Progress()[app].NodeState(v.Number); n.Reason != "" {
		return outboard.Errorf(outboard.Unreachable, "", "app %s %s to become ready on this node: %s", app, n.State, n.Reason)
	}
	return outboard.Errorf(outboard.Unreachable, "", "app %s is being made ready on this node: try again in a moment", app)
}

func (c *Deployments[F, W]) entryOf(app string) *entry[F, W] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[app]
	if e == nil {
		e = &entry[F, W]{resources: c.opts.Planes.NewResources(app), versions: map[int]*Version[F, W]{}}
		c.entries[app] = e
	}
	return e
}

// keptVersions is how many versions of an app stay ready, for executions that began with them. An
// older version is built again when an execution needs it.
const keptVersions = 2

// publish makes the versions that are ready current, publishes their routes, and closes outdated
// versions. deployed are the names of the apps in the registry; early are loading apps whose
// messages and schedules this node accepts.
func (c *Deployments[F, W]) publish(deployed map[string]bool, early []*catalog.Version) {
	c.mu.Lock()
	current := map[string]*Version[F, W]{}
	var outdated []*Version[F, W]
	var removed []*entry[F, W]
	for name, e := range c.entries {
		if !deployed[name] {
			delete(c.entries, name)
			removed = append(removed, e)
			if e.job != nil {
				e.job.cancel()
			}
			continue
		}
		if v := e.inForce(); v != nil {
			current[name] = v
		}
		outdated = append(outdated, e.removeOutdated()...)
	}
	c.current.Store(&current)
	c.mu.Unlock()
	if err := c.publishRoutes(current, early); err != nil {
		c.log.Error("the apps' routes can't be served", "error", err)
	}
	c.mu.Lock()
	for name, v := range current {
		c.entries[name].serving = v.Number
	}
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	c.closing.Go(func() {
		for _, v := range outdated {
			_ = v.Release() // as in entry.close
		}
		for _, e := range removed {
			e.close()
		}
	})
}

func (c *Deployments[F, W]) publishRoutes(current map[string]*Version[F, W], early []*catalog.Version) error {
	var serving []*Version[F, W]
	for _, name := range slices.Sorted(maps.Keys(current)) {
		serving = append(serving, current[name])
	}
	var loading []Loading
	for _, v := range early {
		name := v.App.Name
		// A version that can't be built is built again, and messages wait for that, too.
		loading = append(loading, Loading{Spec: &v.App, Await: func(ctx context.Context) error {
			return c.await(ctx, name, func(e *entry[F, W]) bool { return e.serving > 0 })
		}})
	}
	return c.opts.Router.Publish(serving, loading)
}

// inForce returns the version that new calls enter: the version built last or, while that is not
// ready, the newest.
func (e *entry[F, W]) inForce() *Version[F, W] {
	if v := e.versions[e.built]; v != nil || len(e.versions) == 0 {
		return v
	}
	return e.versions[slices.Max(slices.Collect(maps.Keys(e.versions)))]
}

// removeOutdated removes and returns the versions beyond keptVersions.
func (e *entry[F, W]) removeOutdated() []*Version[F, W] {
	numbers := slices.Sorted(maps.Keys(e.versions))
	var outdated []*Version[F, W]
	for _, n := range numbers[:max(0, len(numbers)-keptVersions)] {
		outdated = append(outdated, e.versions[n])
		delete(e.versions, n)
	}
	return outdated
}

// Acquire returns a version of an app with a reference that the caller releases. Number 0 is
// the version in force.
func (c *Deployments[F, W]) Acquire(ctx context.Context, app string, number int) (*Version[F, W], error) {
	if v := c.Current(app); v != nil && (number == 0 || v.Number == number) && v.retain() {
		return v, nil
	}
	c.mu.Lock()
	e := c.entries[app]
	var v *Version[F, W]
	if e != nil && number != 0 {
		v = e.versions[number]
	}
	c.mu.Unlock()
	if v != nil && v.retain() {
		return v, nil
	}
	return c.rebuild(ctx, app, number)
}

// ensureBuilt builds a version, unless that is done, and adds it to its app's entry. Concurrent
// callers share one build.
func (c *Deployments[F, W]) ensureBuilt(ctx context.Context, e *entry[F, W], v *catalog.Version) error {
	key := versionKey{v.App.Name, v.Number}
	for {
		c.mu.Lock()
		if e.versions[v.Number] != nil {
			c.mu.Unlock()
			return nil
		}
		f := c.building[key]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			c.building[key] = f
			c.mu.Unlock()
			return c.buildShared(ctx, e, v, f)
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.done:
		}
		if f.err != nil && !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return f.err
		}
	}
}

// buildShared builds a version for all waiters of the flight.
func (c *Deployments[F, W]) buildShared(ctx context.Context, e *entry[F, W], v *catalog.Version, f *flight) error {
	built, problems, err := c.build(ctx, recipe{number: v.Number, spec: &v.App, file: v.File, files: v.Files, resources: e.resources})
	if err == nil && len(problems) > 0 {
		err = manifest.Problems(problems)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.entries[v.App.Name] != e {
		c.closing.Go(func() { _ = built.Release() })
		err = outboard.Errorf(outboard.NotFound, "", "app %s was removed", v.App.Name)
	}
	if err == nil {
		e.versions[v.Number] = built
	}
	f.err = err
	delete(c.building, versionKey{v.App.Name, v.Number})
	close(f.done)
	return err
}

// rebuild builds an old version again, for an execution that began with it.
func (c *Deployments[F, W]) rebuild(ctx context.Context, app string, number int) (*Version[F, W], error) {
	history, err := c.registered(ctx, app, number)
	if err != nil {
		return nil, err
	}
	if history.Current() == nil {
		return nil, outboard.Errorf(outboard.NotFound, "", "there is no app %s: deploy it", app)
	}
	for i := range history.Versions {
		if v := &history.Versions[i]; v.Number == number || number == 0 && v == history.Current() {
			return c.acquireBuilt(ctx, v)
		}
	}
	return nil, outboard.Errorf(outboard.NotFound, "", "version %d of app %s is not kept any more", number, app)
}

// registered returns the history of an app, with a version of this number or a later one. An
// execution of another node may name a version before this node's view of the registry has it:
// that does not end the execution.
func (c *Deployments[F, W]) registered(ctx context.Context, app string, number int) (catalog.App, error) {
	ctx, cancel := context.WithTimeout(ctx, loadingTimeout)
	defer cancel()
	for {
		changed := c.opts.Registry.Changed()
		history, _ := c.opts.Registry.Get(app)
		if history.Newest() >= number {
			return history, nil
		}
		select {
		case <-ctx.Done():
			return history, outboard.Errorf(outboard.Unreachable, "", "version %d of app %s is not known here yet: %w", number, app, ctx.Err())
		case <-changed:
		}
	}
}

// acquireBuilt returns a version with a reference. It builds the version again if it is retired
// meanwhile.
func (c *Deployments[F, W]) acquireBuilt(ctx context.Context, v *catalog.Version) (*Version[F, W], error) {
	for {
		e := c.entryOf(v.App.Name)
		if err := c.ensureBuilt(ctx, e, v); outboard.KindOf(err) == outboard.NotFound {
			// That no reachable node has a file does not end an execution.
			return nil, outboard.Errorf(outboard.Unreachable, "", "version %d of app %s: %w", v.Number, v.App.Name, err)
		} else if err != nil {
			return nil, err
		}
		c.mu.Lock()
		have := e.versions[v.Number]
		c.mu.Unlock()
		if have != nil && have.retain() {
			return have, nil
		}
	}
}

// Check builds an app and closes it again. It returns all problems as manifest.Problems.
func (c *Deployments[F, W]) Check(ctx context.Context, m *manifest.Manifest, file string, files map[string]string) error {
	problems := c.opts.Registry.Foreign(m)
	trial := c.opts.Planes.NewResources(m.App.Name)
	defer trial.Close()
	v, more, err := c.build(ctx, recipe{spec: &m.App, file: file, files: files, text: m, resources: trial})
	if err != nil {
		return err
	}
	if v != nil {
		if err := v.Release(); err != nil {
			return err
		}
	}
	if problems = append(problems, more...); len(problems) > 0 {
		return manifest.Problems(problems)
	}
	return nil
}

// AwaitVersion waits until this node serves a version of an app, or can't.
func (c *Deployments[F, W]) AwaitVersion(ctx context.Context, app string, number int) error {
	for {
		c.mu.Lock()
		e, changed := c.entries[app], c.changed
		var err error
		done := e != nil && (e.serving >= number || e.built >= number && e.failure != nil)
		if done {
			err = e.failure
		}
		c.mu.Unlock()
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

// AwaitServing waits until this node serves any version of an app, or can't. The error says
// why it does not.
func (c *Deployments[F, W]) AwaitServing(ctx context.Context, app string) error {
	return c.await(ctx, app, func(e *entry[F, W]) bool { return e.serving > 0 || e.failure != nil })
}

// loadingTimeout is how long a call by hand, or by another function, waits for an app that
// is loading.
const loadingTimeout = time.Minute

// AwaitCurrent is Current, but waits for an app that is loading.
func (c *Deployments[F, W]) AwaitCurrent(ctx context.Context, app string) (*Version[F, W], error) {
	if v := c.Current(app); v != nil {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadingTimeout)
	defer cancel()
	if err := c.AwaitServing(ctx, app); err != nil {
		return nil, err
	}
	if v := c.Current(app); v != nil {
		return v, nil
	}
	return nil, c.Unavailable(app) // it was removed meanwhile
}

// await waits until done reports true of an app's entry.
func (c *Deployments[F, W]) await(ctx context.Context, app string, done func(*entry[F, W]) bool) error {
	for {
		registered := c.opts.Registry.Changed()
		if err := c.Unavailable(app); outboard.KindOf(err) == outboard.NotFound {
			return err
		}
		c.mu.Lock()
		e, changed := c.entries[app], c.changed
		over, serving := e != nil && done(e), e != nil && e.serving > 0
		c.mu.Unlock()
		if over && serving {
			return nil
		}
		if over {
			return c.Unavailable(app)
		}
		select {
		case <-ctx.Done():
			return c.Unavailable(app)
		case <-changed:
		case <-registered:
		}
	}
}

// ArenaSize returns the size of the arenas of an app's executions: all of its versions that are
// ready here can map them.
func (c *Deployments[F, W]) ArenaSize(app string) outboard.Bytes {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := defaultArena
	if e := c.entries[app]; e != nil {
		for _, v := range e.versions {
			size = min(size, v.ArenaSize())
		}
	}
	return size
}
