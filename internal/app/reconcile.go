package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/app/catalog"
)

// reconciler makes Deployments match the pool's registry. Apps are built independently and
// published as soon as each is ready: an app waits for another only in the build queue.
type reconciler[F Function, W any] struct {
	apps  *Deployments[F, W]
	queue buildQueue
	work  sync.WaitGroup
	built chan struct{} // capacity 1: a build ended

	// elsewhere reports, for apps that are not ready here, whether another node serves them.
	elsewhere map[string]bool
	surveying bool // a survey of the other nodes is in progress
	outdated  bool // and the nodes have changed since it began
	surveyed  chan map[string]bool
}

func newReconciler[F Function, W any](c *Deployments[F, W]) *reconciler[F, W] {
	return &reconciler[F, W]{apps: c, built: make(chan struct{}, 1), surveyed: make(chan map[string]bool, 1)}
}

// Run reconciles the deployments with the registry until ctx ends. It is ready when the builds of
// all apps have begun.
func (c *Deployments[F, W]) Run(ctx context.Context, ready func()) error {
	r := newReconciler(c)
	defer r.work.Wait()
	for {
		changed, moved := c.opts.Registry.Changed(), c.opts.Members()
		if loading := r.reconcile(ctx); len(loading) == 0 {
			moved = nil
		}
		if ready != nil {
			ready()
			ready = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-r.built:
		case <-r.retry():
		case <-moved:
			r.elsewhere, r.outdated = nil, r.surveying
		case found := <-r.surveyed:
			r.surveying = false
			if !r.outdated {
				r.elsewhere = found
			}
			r.outdated = false
		}
	}
}

// reconcile begins the builds of new versions, publishes the versions that are ready, and removes
// apps that are no longer deployed. It returns the apps of which no version is ready.
func (r *reconciler[F, W]) reconcile(ctx context.Context) (loading []*catalog.Version) {
	deployed := map[string]bool{}
	for _, app := range r.apps.opts.Registry.List() {
		v := app.Current()
		if v == nil || v.App.Tenant != r.apps.opts.Tenant {
			continue
		}
		deployed[v.App.Name] = true
		if r.startBuild(ctx, v) {
			loading = append(loading, v)
		}
	}
	r.apps.publish(deployed, r.acceptEarly(ctx, loading))
	return loading
}

// retryInterval is how long after a failure a version is built again.
const retryInterval = 2 * time.Second

// retry fires when the next failed build is due again.
func (r *reconciler[F, W]) retry() <-chan time.Time {
	c := r.apps
	c.mu.Lock()
	defer c.mu.Unlock()
	var first time.Time
	for _, e := range c.entries {
		if due := e.failed.Add(retryInterval); e.failure != nil && e.job == nil && (first.IsZero() || due.Before(first)) {
			first = due
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

// startBuild begins to build a version, unless it is ready or being built or its build failed
// within retryInterval. It reports whether the app has neither a ready version nor a known failure.
func (r *reconciler[F, W]) startBuild(ctx context.Context, v *catalog.Version) (loading bool) {
	e, c := r.apps.entryOf(v.App.Name), r.apps
	c.mu.Lock()
	defer c.mu.Unlock()
	loading = len(e.versions) == 0 && e.failure == nil
	switch {
	case e.job != nil && e.job.number == v.Number:
		return loading
	case e.job != nil:
		e.job.cancel() // it is out of date
	case e.built == v.Number && (e.versions[v.Number] != nil || time.Since(e.failed) < retryInterval):
		return loading
	}
	e.resources.SetSecrets(v.Secrets)
	ctx, cancel := context.WithCancel(ctx)
	j := &job{v.Number, cancel}
	e.job = j
	r.work.Go(func() {
		defer cancel()
		r.runJob(ctx, e, j, v)
	})
	return loading
}

// runJob builds a version and records the result in the app's entry.
func (r *reconciler[F, W]) runJob(ctx context.Context, e *entry[F, W], j *job, v *catalog.Version) {
	c := r.apps
	err := r.build(ctx, e, v)
	c.mu.Lock()
	current := e.job == j && ctx.Err() == nil
	if e.job == j {
		e.job = nil
	}
	if current {
		e.built, e.failure, e.failed = v.Number, err, time.Now()
	}
	c.mu.Unlock()
	switch {
	case !current:
		return
	case err != nil:
		c.log.Error("an app's version can't be served here, and is tried again", "app", v.App.Name, "version", v.Number, "error", err)
	default:
		c.log.Info("an app is served", "app", v.App.Name, "version", v.Number)
	}
	select {
	case r.built <- struct{}{}:
	default: // the reconciler is awake already
	}
}

// slowBuild is how long a version may take until the log says that it is not ready.
const slowBuild = 10 * time.Second

// build fetches a version's files and builds it when the queue admits it.
func (r *reconciler[F, W]) build(ctx context.Context, e *entry[F, W], v *catalog.Version) error {
	late := time.AfterFunc(slowBuild, func() {
		r.apps.log.Warn("an app is not ready yet", "app", v.App.Name, "version", v.Number, "after", slowBuild)
	})
	defer late.Stop()
	size, err := r.fetch(ctx, v)
	if err == nil {
		err = r.queue.acquire(ctx, size)
	}
	if err != nil {
		return err
	}
	defer r.queue.release(size)
	return r.apps.ensureBuilt(ctx, e, v)
}

// fetch brings the files of a version to this node and returns their size in bytes. It runs before
// the version enters the build queue, which a file that does not arrive would block.
func (r *reconciler[F, W]) fetch(ctx context.Context, v *catalog.Version) (size int64, err error) {
	files, counted := r.apps.opts.Files, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(v.Files)) {
		digest := v.Files[name]
		if counted[digest] {
			continue
		}
		counted[digest] = true
		n, err := files.Size(digest)
		if err != nil {
			var content []byte
			content, err = files.Read(ctx, digest)
			n = int64(len(content))
		}
		if err != nil {
			return 0, fmt.Errorf("file %s: %w", name, err)
		}
		size += n
	}
	return size, nil
}

// acceptEarly returns the loading apps whose messages and schedules this node accepts before it can
// serve them, since no other node serves the app. It begins a survey of the nodes if that is not
// known.
func (r *reconciler[F, W]) acceptEarly(ctx context.Context, loading []*catalog.Version) (early []*catalog.Version) {
	unknown := false
	for _, v := range loading {
		elsewhere, known := r.elsewhere[v.App.Name]
		unknown = unknown || !known
		if known && !elsewhere {
			early = append(early, v)
		}
	}
	if unknown && !r.surveying {
		r.surveying = true
		r.work.Go(func() { r.surveyed <- r.apps.opts.Survey(ctx).Serving(loading) })
	}
	return early
}
