// Package catalog keeps the deployed versions of apps in the pool's table.
//
// Each app has one key, `apps/NAME`, with its last versions; it is written by compare-and-swap, so
// that all nodes agree on the order of deployments. A version has the manifest's content, the
// digests of its files and its secrets: all that a node needs but the files themselves, which are
// artifacts.
package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/versions"
)

const (
	prefix = "apps/"
	// MaxVersion bounds a version, its manifest and secrets, in bytes of JSON.
	MaxVersion = 144 << 10
	// keptVersions is how many versions of an app are kept, if they fit into keptBytes: all are one
	// value of the table, which has half a megabyte at most.
	keptVersions = 8
	keptBytes    = 3 * MaxVersion
)

// Version is one deployment of an app.
type Version struct {
	Number int          `json:"number"`
	App    manifest.App `json:"app"`
	// File is the manifest's name.
	File string `json:"file"`
	// Files are the digests of the modules and workflows, by their names in App.
	Files map[string]string `json:"files"`
	// Secrets are the values of the app's secrets. No command and no API shows them.
	Secrets map[string][]byte `json:"secrets,omitempty"`
	Applied time.Time         `json:"applied"`
	By      outboard.NodeID   `json:"by"`
	// Of is the version whose content this one brought back, 0 for none.
	Of int `json:"of,omitempty"`
}

// Numbers implements versions.Version.
func (v *Version) Numbers() (own, of int) { return v.Number, v.Of }

// Stamp implements versions.Version.
func (v *Version) Stamp(number int, at time.Time, by outboard.NodeID) {
	v.Number, v.Applied, v.By = number, at, by
}

// Size implements versions.Version.
func (v *Version) Size() int {
	text, err := json.Marshal(v)
	if err != nil {
		return MaxVersion + 1 // can't happen: writing the version returns the error
	}
	return len(text)
}

// App is the history of an app: the versions that are kept, oldest first. The last is in force.
type App = versions.History[Version, *Version]

// Options configure a Catalog.
type Options struct {
	State *state.State
	// Self is this node.
	Self outboard.NodeID
	// Logger logs unreadable records. The default discards.
	Logger *slog.Logger
}

// Catalog is a node's view of the apps, by which it also changes them. All methods may be called by
// several goroutines.
type Catalog struct {
	opts Options
	view *state.Follower
	apps map[string]App // under view's lock
}

// Open follows the table. It returns when the first view is complete.
func Open(ctx context.Context, opts Options) (*Catalog, error) {
	r := &Catalog{opts: opts, apps: map[string]App{}}
	var err error
	if r.view, err = state.Follow(ctx, opts.State, opts.Logger, r.applyEntry); err != nil {
		return nil, fmt.Errorf("open apps: %w", err)
	}
	return r, nil
}

// Close stops following.
func (r *Catalog) Close() error { return r.view.Close() }

// Changed returns a channel that is closed at the next change of the apps.
func (r *Catalog) Changed() <-chan struct{} { return r.view.Changed() }

func (r *Catalog) applyEntry(e state.Entry) (bool, error) {
	name, ok := strings.CutPrefix(e.Key, prefix)
	if !ok || e.Revision <= r.apps[name].Revision {
		return false, nil
	}
	a, err := versions.Decode[Version](e)
	if err != nil {
		return false, err
	}
	if now := a.Current(); now != nil && now.App.Name != name {
		return false, fmt.Errorf("the record has the app %q", now.App.Name)
	}
	for i := range a.Versions {
		if err := a.Versions[i].checkNames(); err != nil {
			return false, err
		}
	}
	r.apps[name] = a
	return true, nil
}

// checkNames returns an error unless the names of a version's app and tenant are proper. Another node
// may have written it to the table: a node uses the names as those of folders.
func (v *Version) checkNames() error {
	for what, name := range map[string]string{"app": v.App.Name, "tenant": v.App.Tenant} {
		if why := manifest.CheckLabel(name); why != "" {
			return fmt.Errorf("version %d: the name %.100q of the %s %s", v.Number, name, what, why)
		}
	}
	return nil
}

// List returns all deployed apps, by name.
func (r *Catalog) List() []App {
	r.view.Lock()
	defer r.view.Unlock()
	var all []App
	for _, a := range r.apps {
		if a.Current() != nil {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b App) int { return cmp.Compare(a.Current().App.Name, b.Current().App.Name) })
	return all
}

// Get returns the app with a name, if it is deployed.
func (r *Catalog) Get(name string) (App, bool) {
	r.view.Lock()
	defer r.view.Unlock()
	a, ok := r.apps[name]
	return a, ok && a.Current() != nil
}

// Names returns the names of the deployed apps.
func (r *Catalog) Names() []string {
	var names []string
	for _, a := range r.List() {
		names = append(names, a.Current().App.Name)
	}
	return names
}

// Files returns the digests of all files that the kept versions need.
func (r *Catalog) Files() map[string]bool {
	files := map[string]bool{}
	for _, a := range r.List() {
		for _, v := range a.Versions {
			for d := range maps.Values(v.Files) {
				files[d] = true
			}
		}
	}
	return files
}

func (r *Catalog) history(name string) versions.Keeper[Version, *Version] {
	return versions.Keeper[Version, *Version]{
		State: r.opts.State, Key: prefix + name, Self: r.opts.Self, Versions: keptVersions, Bytes: keptBytes,
	}
}

// Apply puts a version in force in the whole pool; Number, Applied and By are filled in.
// The caller has checked it.
func (r *Catalog) Apply(ctx context.Context, v Version) (Version, error) {
	op := "deploy " + v.App.Name
	if size := v.Size(); size > MaxVersion {
		return Version{}, outboard.Errorf(outboard.Invalid, op,
			"its manifest and secrets have %d bytes, at most %d are allowed: split the app, or read what is large from a bucket", size, MaxVersion)
	}
	return r.history(v.App.Name).Push(ctx, op, func(a App) (Version, error) {
		if now := a.Current(); now != nil && now.App.Tenant != v.App.Tenant {
			return v, outboard.Errorf(outboard.Conflict, op,
				"the app belongs to tenant %s: remove it first with `outboard apps remove %s`, or give this one another name", now.App.Tenant, v.App.Name)
		}
		v.Of = 0
		return v, nil
	})
}

// Await waits until this view of the pool has a version of an app, or a later one. A version that
// was applied through another view may not have arrived yet.
func (r *Catalog) Await(ctx context.Context, name string, number int) error {
	for {
		changed := r.Changed()
		app, _ := r.Get(name)
		if v := app.Current(); v != nil && v.Number >= number {
			return nil
		}
		select {
		case <-ctx.Done():
			return outboard.Errorf(outboard.NotFound, "", "there is no version %d of an app %q: see `outboard apps`", number, name)
		case <-changed:
		}
	}
}

// Rollback puts the version before the one in force back in force.
func (r *Catalog) Rollback(ctx context.Context, name string) (Version, error) {
	op := "roll back " + name
	return r.history(name).Push(ctx, op, func(a App) (Version, error) {
		if a.Current() == nil {
			return Version{}, r.unknown(op, name)
		}
		v, ok := a.Previous()
		if !ok {
			return v, outboard.Errorf(outboard.NotFound, op, "there is no earlier version")
		}
		v.Of = cmp.Or(v.Of, v.Number)
		return v, nil
	})
}

// Remove removes an app. Versions that are deployed under its name later have greater numbers.
func (r *Catalog) Remove(ctx context.Context, name string) error {
	op := "remove " + name
	return r.history(name).Remove(ctx, op, func(a App) error {
		if a.Current() == nil {
			return r.unknown(op, name)
		}
		return nil
	})
}

func (r *Catalog) unknown(op, name string) error {
	names := r.Names()
	if len(names) == 0 {
		return outboard.Errorf(outboard.NotFound, op, "there is no app %q, and no other: deploy one with `outboard deploy app.yaml`", name)
	}
	return outboard.Errorf(outboard.NotFound, op, "there is no app %q: there are %s", name, strings.Join(names, ", "))
}
