package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/app"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/tenant/peer"
)

// readyTimeout is how long a deployment waits until this node serves it.
const readyTimeout = 2 * time.Minute

// appsAPI is the part of the local API that deploys and lists apps and functions.
type appsAPI struct {
	tenant   *Tenant
	apps     *deployments
	registry *catalog.Catalog
}

func (a *appsAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/apps", api.Answer(a.postApp))
	mux.HandleFunc("GET /v1/apps", api.Answer(a.getApps))
	mux.HandleFunc("GET /v1/apps/{app}/nodes", api.Answer(a.getAppNodes))
	mux.HandleFunc("POST /v1/apps/{app}/rollback", api.Answer(a.postRollback))
	mux.HandleFunc("GET /v1/functions", api.Answer(afterLoading(a.apps, a.getFunctions)))
}

// postApp checks an app as a whole and, unless the request asks for the check only, puts it in
// force in the pool.
func (a *appsAPI) postApp(r *http.Request) (client.Deployed, error) {
	var d client.Deployment
	if err := readJSON(r, &d); err != nil {
		return client.Deployed{}, err
	}
	v, err := a.check(r.Context(), &d)
	if err != nil {
		return client.Deployed{}, err
	}
	if d.Check {
		return client.Deployed{App: v.App.Name, Tenant: v.App.Tenant, Routes: a.addresses(&v.App), Notes: a.notes(r.Context(), &v)}, nil
	}
	applied, err := a.registry.Apply(r.Context(), v)
	if err != nil {
		return client.Deployed{}, err
	}
	out, err := a.deployed(r.Context(), applied, d.NoWait)
	out.Notes = a.notes(r.Context(), &v)
	return out, err
}

// noteLimit is how long the pool may take to report which of an app's models it has.
const noteLimit = 2 * time.Second

// notes returns remarks on an app that are not mistakes: the models that its functions import may
// be pushed later.
func (a *appsAPI) notes(ctx context.Context, v *catalog.Version) []client.Problem {
	ctx, cancel := context.WithTimeout(ctx, noteLimit)
	defer cancel()
	var all []client.Problem
	for _, name := range slices.Sorted(maps.Keys(v.App.Functions)) {
		for _, i := range v.App.Functions[name].Imports {
			if i.Kind == manifest.ImportModel && !a.tenant.models.Ready(ctx, i.Name) {
				all = append(all, client.Problem{File: v.File, Text: fmt.Sprintf(
					"function %s: no model %s is ready in this pool; `outboard models push %s FILE` brings it", name, i.Name, i.Name)})
			}
		}
	}
	return all
}

// deployed waits until this node serves a version, unless the request asks for no wait.
func (a *appsAPI) deployed(ctx context.Context, v catalog.Version, noWait bool) (client.Deployed, error) {
	out := client.Deployed{
		App: v.App.Name, Tenant: v.App.Tenant, Version: v.Number, Applied: v.Applied, Of: v.Of, Routes: a.addresses(&v.App),
	}
	if noWait {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return out, a.apps.AwaitVersion(ctx, v.App.Name, v.Number)
}

// check returns the version of a deployment. It refuses a faulty app with all of its problems.
func (a *appsAPI) check(ctx context.Context, d *client.Deployment) (catalog.Version, error) {
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
	if _, ok := err.(manifest.Problems); err != nil && !ok { //nolint:errorlint // Parse returns it as it is
		err = outboard.Errorf(outboard.Invalid, "deploy", "%w", err)
	}
	if err != nil {
		return catalog.Version{}, refused(err)
	}
	if err := a.apps.Check(ctx, m, d.File, d.Files); err != nil {
		return catalog.Version{}, refused(err)
	}
	return catalog.Version{App: m.App, File: d.File, Files: d.Files, Secrets: d.Secrets}, nil
}

// refused turns problems into an error that a client can decode.
func refused(err error) error {
	problems, ok := err.(manifest.Problems) //nolint:errorlint // Parse and Check return it as it is
	if !ok {
		return err
	}
	e := &client.ProblemsError{}
	for _, p := range problems {
		e.Problems = append(e.Problems, client.Problem(p))
	}
	return &outboard.Error{Op: "deploy", Kind: outboard.Invalid, Err: e}
}

// addresses returns the addresses at which an app's routes are served here.
func (a *appsAPI) addresses(spec *manifest.App) []string {
	if a.tenant.config.HTTP == "" {
		return nil
	}
	var all []string
	for _, r := range spec.Routes {
		url := "http://" + a.tenant.config.HTTP + "/" + spec.Name + r.Path
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

func (a *appsAPI) postRollback(r *http.Request) (client.Deployed, error) {
	if err := a.checkOwn(r.PathValue("app")); err != nil {
		return client.Deployed{}, err
	}
	v, err := a.registry.Rollback(r.Context(), r.PathValue("app"))
	if err != nil {
		return client.Deployed{}, err
	}
	return a.deployed(r.Context(), v, r.URL.Query().Get("wait") == "false")
}

// checkOwn refuses an app that does not exist, or is another tenant's.
func (a *appsAPI) checkOwn(name string) error {
	app, ok := a.registry.Get(name)
	if v := app.Current(); !ok || v == nil || v.App.Tenant != a.tenant.config.Tenant {
		return outboard.Errorf(outboard.NotFound, "", "there is no app %q: see `outboard apps`", name)
	}
	return nil
}

func (a *appsAPI) getApps(r *http.Request) ([]client.App, error) {
	var survey *app.Survey // nil: the nodes are not requested
	if boolOf(r, "nodes") {
		survey = a.tenant.survey(r.Context())
	}
	all := []client.App{}
	for _, history := range a.registry.List() {
		v := history.Current()
		if v == nil || v.App.Tenant != a.tenant.config.Tenant {
			continue
		}
		described := a.describe(history, v)
		described.Nodes = survey.NodeStates(v.App.Name, v.Number)
		all = append(all, described)
	}
	return all, nil
}

func (a *appsAPI) describe(history catalog.App, v *catalog.Version) client.App {
	out := client.App{
		Name: v.App.Name, Tenant: v.App.Tenant, Version: v.Number, Applied: v.Applied, By: v.By, Of: v.Of,
		Functions: slices.Sorted(maps.Keys(v.App.Functions)), Workflows: slices.Sorted(maps.Keys(v.App.Workflows)), Routes: []string{},
	}
	for _, r := range v.App.Routes {
		out.Routes = append(out.Routes, strings.TrimSpace(strings.Join(r.Methods, ",")+" "+r.Path))
	}
	for i := range history.Versions {
		out.Versions = append(out.Versions, history.Versions[i].Number)
	}
	if previous, ok := history.Previous(); ok {
		out.Previous = cmp.Or(previous.Of, previous.Number)
	}
	n := a.apps.Progress()[v.App.Name].NodeState(v.Number)
	out.State, out.Reason = n.State, n.Reason
	return out
}

// getAppNodes returns the nodes' progress with a version of an app, the current version by default.
func (a *appsAPI) getAppNodes(r *http.Request) ([]client.AppNode, error) {
	name, version := r.PathValue("app"), max(numberOf(r, "version"), 1)
	ctx, cancel := context.WithTimeout(r.Context(), surveyTimeout)
	defer cancel()
	if err := a.registry.Await(ctx, name, version); err != nil {
		return nil, err
	}
	if err := a.checkOwn(name); err != nil {
		return nil, err
	}
	if r.URL.Query().Get("version") == "" {
		history, _ := a.registry.Get(name)
		if v := history.Current(); v != nil {
			version = v.Number
		}
	}
	return a.tenant.survey(r.Context()).NodeStates(name, version), nil
}

// getFunctions lists the functions with their counts on all nodes.
func (a *appsAPI) getFunctions(r *http.Request) ([]client.Function, error) {
	ctx, cancel := context.WithTimeout(r.Context(), countsTimeout)
	defer cancel()
	app := r.URL.Query().Get("app")
	counts, missing := gatherCounts(ctx, a.tenant.members.Peers(), func(ctx context.Context, node outboard.NodeID) ([]peer.Counts, error) {
		return a.tenant.peers.Counts(ctx, node, app)
	})
	counts[a.tenant.config.Node] = localCounts(a.apps, app)
	all := []client.Function{}
	for _, v := range a.apps.Select(app) {
		for _, name := range slices.Sorted(maps.Keys(v.Functions)) {
			f := v.Functions[name].describe()
			addCounts(&f, counts)
			f.Missing = missing
			all = append(all, f)
		}
	}
	return all, nil
}

func limitsOf(l function.Limits, window outboard.Bytes) client.FunctionLimits {
	return client.FunctionLimits{
		Memory: l.Memory, Deadline: client.Duration(l.Deadline), Fuel: l.Fuel, Concurrency: l.Concurrency, Queue: l.Queue,
		Response: l.Response, Window: window,
	}
}
