package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/app/catalog"
)

// A follower makes the shelf what the pool says. Each app is made ready by itself, and taken
// into service when it is: none waits for another but for its turn.
type follower struct {
	tenant *Tenant
	builds builds
	work   sync.WaitGroup
	again  chan struct{} // has room for one: a version is ready, or can't be

	// Of apps that are not ready here: whether another node serves them.
	elsewhere map[string]bool
	looking   bool // somebody asks the other nodes
	outdated  bool // and they have changed since
	looked    chan map[string]bool
}

// follow makes the shelf what the pool says, whenever that changes. It is ready when it
// knows what there is to be made ready.
func (t *Tenant) follow(ctx context.Context, ready func()) error {
	f := &follower{tenant: t, again: make(chan struct{}, 1), looked: make(chan map[string]bool, 1)}
	defer f.work.Wait()
	for {
		changed, moved := t.apps.registry.Changed(), t.members.Changed()
		if coming := f.adjust(ctx); len(coming) == 0 {
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
		case <-f.again:
		case <-f.retry():
		case <-moved:
			f.elsewhere, f.outdated = nil, f.looking
		case found := <-f.looked:
			f.looking = false
			if !f.outdated {
				f.elsewhere = found
			}
			f.outdated = false
		}
	}
}

// adjust has what is new made ready, lets what is ready be called, and takes away what is gone.
// It returns the apps of which nothing can be called yet.
func (f *follower) adjust(ctx context.Context) (coming []*catalog.Version) {
	there := map[string]bool{}
	for _, app := range f.tenant.apps.registry.List() {
		v := app.Current()
		if v == nil || v.App.Tenant != f.tenant.config.Tenant {
			continue
		}
		there[v.App.Name] = true
		if f.want(ctx, v) {
			coming = append(coming, v)
		}
	}
	f.tenant.publish(there, f.early(ctx, coming))
	return coming
}

// retryAfter is how long after a failure a version is built again.
const retryAfter = 2 * time.Second

// retry fires when something has to be tried again.
func (f *follower) retry() <-chan time.Time {
	s := f.tenant.apps
	s.mu.Lock()
	defer s.mu.Unlock()
	var next <-chan time.Time
	var at time.Time
	for _, p := range s.places {
		if due := p.tried.Add(retryAfter); p.failure != nil && p.job == nil && (next == nil || due.Before(at)) {
			next, at = time.After(time.Until(due)), due
		}
	}
	return next
}

// want has a version made ready, unless it is, or somebody does so, or that failed just now. It
// says whether there is nothing of the app to be called, nor a reason.
func (f *follower) want(ctx context.Context, v *catalog.Version) (coming bool) {
	p, s := f.tenant.placeOf(v.App.Name), f.tenant.apps
	s.mu.Lock()
	defer s.mu.Unlock()
	coming = len(p.versions) == 0 && p.failure == nil
	switch {
	case p.job != nil && p.job.number == v.Number:
		return coming
	case p.job != nil:
		p.job.cancel() // it is out of date
	case p.wanted == v.Number && (p.versions[v.Number] != nil || time.Since(p.tried) < retryAfter):
		return coming
	}
	p.home.keep(v.Secrets)
	ctx, cancel := context.WithCancel(ctx)
	p.job = &job{v.Number, cancel}
	j := p.job
	f.work.Go(func() {
		defer cancel()
		f.place(ctx, p, j, v)
	})
	return coming
}

// place makes a version ready and puts it on the shelf.
func (f *follower) place(ctx context.Context, p *place, j *job, v *catalog.Version) {
	t := f.tenant
	err := f.build(ctx, p, v)
	t.apps.mu.Lock()
	current := p.job == j && ctx.Err() == nil
	if p.job == j {
		p.job = nil
	}
	if current {
		p.wanted, p.failure, p.tried = v.Number, err, time.Now()
	}
	t.apps.mu.Unlock()
	switch {
	case !current:
		return
	case err != nil:
		t.log.Error("an app's version can't be served here, and is tried again", "app", v.App.Name, "version", v.Number, "error", err)
	default:
		t.log.Info("an app is served", "app", v.App.Name, "version", v.Number)
	}
	select {
	case f.again <- struct{}{}:
	default: // it will be looked at already
	}
}

// sayAfter is how long a version may take until the log says that it is not ready.
const sayAfter = 10 * time.Second

// build makes a version ready when it is its turn.
func (f *follower) build(ctx context.Context, p *place, v *catalog.Version) error {
	late := time.AfterFunc(sayAfter, func() {
		f.tenant.log.Warn("an app is not ready yet", "app", v.App.Name, "version", v.Number, "after", sayAfter)
	})
	defer late.Stop()
	size, err := f.fetch(ctx, v)
	if err == nil {
		err = f.builds.take(ctx, size)
	}
	if err != nil {
		return err
	}
	defer f.builds.give(size)
	return f.tenant.ready(ctx, p, v)
}

// fetch brings the files of a version to this node, and says how many bytes they have. Nobody
// waits for his turn behind one whose files do not come.
func (f *follower) fetch(ctx context.Context, v *catalog.Version) (size int64, err error) {
	counted := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(v.Files)) {
		digest := v.Files[name]
		if counted[digest] {
			continue
		}
		counted[digest] = true
		n, err := f.tenant.files.artifacts.Size(digest)
		if err != nil {
			var content []byte
			content, err = f.tenant.files.read(ctx, digest)
			n = int64(len(content))
		}
		if err != nil {
			return 0, fmt.Errorf("file %s: %w", name, err)
		}
		size += n
	}
	return size, nil
}

// early are those of the apps that nobody can call here yet whose messages and times this node
// takes all the same, to let them wait: no other node serves the app. It asks them where it does not know.
func (f *follower) early(ctx context.Context, coming []*catalog.Version) (alone []*catalog.Version) {
	unknown := false
	for _, v := range coming {
		elsewhere, known := f.elsewhere[v.App.Name]
		unknown = unknown || !known
		if known && !elsewhere {
			alone = append(alone, v)
		}
	}
	if unknown && !f.looking {
		f.looking = true
		f.work.Go(func() { f.looked <- f.look(ctx, coming) })
	}
	return alone
}

// look asks the other nodes which apps they serve.
func (f *follower) look(ctx context.Context, coming []*catalog.Version) map[string]bool {
	return f.tenant.askStages(ctx).serve(coming)
}

// serve says of each app whether a node serves it. One that is too old to tell is up, and was
// not before it served all.
func (p *pooled) serve(coming []*catalog.Version) map[string]bool {
	old := slices.ContainsFunc(slices.Collect(maps.Values(p.failed)), func(err error) bool { return errors.Is(err, errOld) })
	found := map[string]bool{}
	for _, v := range coming {
		found[v.App.Name] = old
		for _, stages := range p.told {
			if stages[v.App.Name].Serves > 0 {
				found[v.App.Name] = true
			}
		}
	}
	return found
}
