package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/function"
)

// readyLimit is how long a deployment waits until this node serves it.
const readyLimit = 2 * time.Minute

// postApp checks an app as a whole and, unless only that is wanted, puts it in force in
// the pool.
func (t *Tenant) postApp(r *http.Request) (client.Deployed, error) {
	var d client.Deployment
	if err := readJSON(r, &d); err != nil {
		return client.Deployed{}, err
	}
	v, err := t.check(r.Context(), &d)
	if err != nil {
		return client.Deployed{}, err
	}
	if d.Check {
		return client.Deployed{App: v.App.Name, Tenant: v.App.Tenant, Routes: t.addresses(&v.App)}, nil
	}
	applied, err := t.apps.registry.Apply(r.Context(), v)
	if err != nil {
		return client.Deployed{}, err
	}
	return t.deployed(r.Context(), applied, d.NoWait)
}

// deployed waits until this node serves a version, unless nobody wants that.
func (t *Tenant) deployed(ctx context.Context, v catalog.Version, noWait bool) (client.Deployed, error) {
	out := client.Deployed{
		App: v.App.Name, Tenant: v.App.Tenant, Version: v.Number, Applied: v.Applied, Of: v.Of, Routes: t.addresses(&v.App),
	}
	if noWait {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	return out, t.awaitVersion(ctx, v.App.Name, v.Number)
}

// check refuses an app of which anything is wrong, with all that is.
func (t *Tenant) check(ctx context.Context, d *client.Deployment) (catalog.Version, error) {
	m, err := manifest.Parse(d.File, []byte(d.Text), manifest.Options{
		File: func(name string) error {
			if d.Files[name] == "" {
				return fmt.Errorf("there is no %s beside the manifest", name)
			}
			return nil
		},
		Secret: func(name string, _ manifest.Secret) error {
			if _, ok := d.Secrets[name]; !ok {
				return errors.New("it has no value: set its variable, or write its file, where you deploy")
			}
			return nil
		},
	})
	if err != nil {
		return catalog.Version{}, refused(err)
	}
	problems := t.apps.registry.Foreign(m)
	trial := newHome(t, m.App.Name)
	defer trial.close()
	v, more, err := t.build(ctx, recipe{spec: &m.App, file: d.File, files: d.Files, text: m}, trial)
	if err != nil {
		return catalog.Version{}, err
	}
	if problems = append(problems, more...); len(problems) > 0 {
		return catalog.Version{}, refused(manifest.Problems(problems))
	}
	if err := v.release(); err != nil {
		return catalog.Version{}, err
	}
	return catalog.Version{App: m.App, File: d.File, Files: d.Files, Secrets: d.Secrets}, nil
}

// refused makes problems an error that a client can read.
func refused(err error) error {
	problems, ok := err.(manifest.Problems) //nolint:errorlint // it is what Parse returns
	if !ok {
		return outboard.Errorf(outboard.Invalid, "deploy", "%w", err)
	}
	e := &client.ProblemsError{}
	for _, p := range problems {
		e.Problems = append(e.Problems, client.Problem(p))
	}
	return &outboard.Error{Op: "deploy", Kind: outboard.Invalid, Err: e}
}

// addresses are where an app's routes are served here.
func (t *Tenant) addresses(spec *manifest.App) []string {
	if t.config.HTTP == "" {
		return nil
	}
	var all []string
	for _, r := range spec.Routes {
		url := "http://" + t.config.HTTP + "/" + spec.Name + r.Path
		switch {
		case r.WebSocket != "":
			all = append(all, "WEBSOCKET ws"+strings.TrimPrefix(url, "http"))
		case len(r.Methods) == 0:
			all = append(all, "ANY "+url)
		default:
			all = append(all, strings.Join(r.Methods, ",")+" "+url)
		}
	}
	return all
}

func (t *Tenant) postRollback(r *http.Request) (client.Deployed, error) {
	if err := t.own(r.PathValue("app")); err != nil {
		return client.Deployed{}, err
	}
	v, err := t.apps.registry.Rollback(r.Context(), r.PathValue("app"))
	if err != nil {
		return client.Deployed{}, err
	}
	return t.deployed(r.Context(), v, r.URL.Query().Get("wait") == "false")
}

// own refuses an app that is not there, or another tenant's.
func (t *Tenant) own(name string) error {
	app, ok := t.apps.registry.Get(name)
	if v := app.Current(); !ok || v == nil || v.App.Tenant != t.config.Tenant {
		return outboard.Errorf(outboard.NotFound, "", "there is no app %q: see `outboard apps`", name)
	}
	return nil
}

func (t *Tenant) getApps(r *http.Request) ([]client.App, error) {
	var told *pooled
	if boolOf(r, "nodes") {
		told = t.askStages(r.Context())
	}
	all := []client.App{}
	for _, app := range t.apps.registry.List() {
		v := app.Current()
		if v == nil || v.App.Tenant != t.config.Tenant {
			continue
		}
		a := t.describe(app, v)
		a.Nodes = told.with(v.App.Name, v.Number)
		all = append(all, a)
	}
	return all, nil
}

func (t *Tenant) describe(app catalog.App, v *catalog.Version) client.App {
	a := client.App{
		Name: v.App.Name, Tenant: v.App.Tenant, Version: v.Number, Applied: v.Applied, By: v.By, Of: v.Of,
		Functions: slices.Sorted(maps.Keys(v.App.Functions)), Workflows: slices.Sorted(maps.Keys(v.App.Workflows)), Routes: []string{},
	}
	for _, r := range v.App.Routes {
		a.Routes = append(a.Routes, strings.TrimSpace(strings.Join(r.Methods, ",")+" "+r.Path))
	}
	for i := range app.Versions {
		a.Versions = append(a.Versions, app.Versions[i].Number)
	}
	a.State, a.Reason = t.stateOf(v)
	return a
}

func (t *Tenant) stateOf(v *catalog.Version) (state, reason string) {
	n := t.stages()[v.App.Name].with(v.Number)
	return n.State, n.Reason
}

// chosen are the versions in force of the app of that name, or of all for "".
func (t *Tenant) chosen(name string) []*version {
	current := *t.apps.current.Load()
	var all []*version
	for _, app := range slices.Sorted(maps.Keys(current)) {
		if name == "" || name == app {
			all = append(all, current[app])
		}
	}
	return all
}

func limitsOf(l function.Limits, window outboard.Bytes) client.FunctionLimits {
	return client.FunctionLimits{
		Memory: l.Memory, Deadline: client.Duration(l.Deadline), Fuel: l.Fuel, Concurrency: l.Concurrency, Queue: l.Queue,
		Response: l.Response, Window: window,
	}
}

// newID names something that happened here.
func newID() string { return nuid.Next() }
