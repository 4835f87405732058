package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// appsAPI is the part of the local API about apps. Requests about one app are forwarded to its
// tenant's process.
type appsAPI struct {
	apps    *catalog.Catalog
	tenants *host.Host
	state   *state.State
}

// register registers the handlers of the local API about apps.
func (a *appsAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/apps", a.postApp)
	mux.HandleFunc("GET /v1/apps", gather[client.App](a))
	mux.HandleFunc("GET /v1/functions", gather[client.Function](a))
	mux.HandleFunc("GET /v1/workflows", gather[client.Workflow](a))
	mux.HandleFunc("GET /v1/executions", gather[client.Execution](a))
	mux.HandleFunc("/v1/apps/{app}/", a.forward)
	mux.HandleFunc("GET /v1/apps/{app}/nodes", a.getAppNodes)
	mux.HandleFunc("DELETE /v1/apps/{app}", api.Answer(a.deleteApp))
	mux.HandleFunc("POST /v1/subjects/{subject}", api.Answer(a.postMessage))
}

// forward forwards a request to the process of an app's tenant.
func (a *appsAPI) forward(w http.ResponseWriter, r *http.Request) {
	app := r.PathValue("app")
	tenant := tenantOf(a.apps, app)
	if tenant == "" {
		api.Refuse(w, outboard.Errorf(outboard.NotFound, "", "there is no app %q: see `outboard apps`", app))
		return
	}
	a.tenants.Proxy(tenant, api.Refuse).ServeHTTP(w, r)
}

// versionLimit is how long this node may take to receive a version of an app.
const versionLimit = 5 * time.Second

// getAppNodes forwards a request about a version that a tenant's process has applied. This node may
// receive that version a moment later, so it waits for it.
func (a *appsAPI) getAppNodes(w http.ResponseWriter, r *http.Request) {
	if version, err := strconv.Atoi(r.URL.Query().Get("version")); err == nil && version > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), versionLimit)
		defer cancel()
		if err := a.apps.Await(ctx, r.PathValue("app"), version); err != nil {
			api.Refuse(w, err)
			return
		}
	}
	a.forward(w, r)
}

// deleteApp removes an app. The node itself removes it: the tenant's process ends with the tenant's
// last app, before it could answer.
func (a *appsAPI) deleteApp(r *http.Request) (api.Nothing, error) {
	return api.Nothing{}, a.apps.Remove(r.Context(), r.PathValue("app"))
}

// postApp forwards a deployment to the process of the tenant that the manifest names.
func (a *appsAPI) postApp(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var d client.Deployment
	if err == nil {
		err = json.Unmarshal(body, &d)
	}
	if err != nil {
		api.Refuse(w, outboard.Errorf(outboard.Invalid, "request", "%w", err))
		return
	}
	m, err := manifest.Parse(d.File, []byte(d.Text), manifest.Options{})
	if err != nil {
		api.Refuse(w, outboard.Errorf(outboard.Invalid, "deploy", "%w", problemsOf(err)))
		return
	}
	if tenant := tenantOf(a.apps, m.App.Name); tenant != "" && tenant != m.App.Tenant {
		api.Refuse(w, outboard.Errorf(outboard.Conflict, "deploy", "app %s belongs to the tenant %s: remove it first, or name this one otherwise", m.App.Name, tenant))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	a.tenants.Proxy(m.App.Tenant, api.Refuse).ServeHTTP(w, r)
}

// problemsOf converts the problems of a manifest to an error that clients can decode.
func problemsOf(err error) error {
	problems, ok := errors.AsType[manifest.Problems](err)
	if !ok {
		return err
	}
	e := &client.ProblemsError{}
	for _, p := range problems {
		e.Problems = append(e.Problems, client.Problem(p))
	}
	return e
}

// gather returns a handler that joins the lists of all tenants' processes; only of the app's tenant
// if the request names an app.
func gather[T any](a *appsAPI) http.HandlerFunc {
	return api.Answer(func(r *http.Request) ([]T, error) {
		tenants := a.tenants.Tenants()
		if app := r.URL.Query().Get("app"); app != "" {
			tenant := tenantOf(a.apps, app)
			if tenant == "" {
				return nil, outboard.Errorf(outboard.NotFound, "", "there is no app %q: see `outboard apps`", app)
			}
			tenants = []string{tenant}
		}
		all := []T{}
		for _, tenant := range tenants {
			var part []T
			if err := a.tenants.Get(r.Context(), tenant, r.URL.RequestURI(), &part); err != nil {
				return nil, err
			}
			all = append(all, part...)
		}
		return all, nil
	})
}

// postMessage publishes a message on a subject.
func (a *appsAPI) postMessage(r *http.Request) (api.Nothing, error) {
	message, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return api.Nothing{}, outboard.Errorf(outboard.Invalid, "publish", "%w", err)
	}
	subject := r.PathValue("subject")
	if first, _, _ := strings.Cut(subject, "."); manifest.Reserved(first) {
		return api.Nothing{}, outboard.Errorf(outboard.Denied, "publish", "subject %q: what begins with %s belongs to the system: begin with a word of your own", subject, first)
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
	defer cancel()
	return api.Nothing{}, a.state.Publish(ctx, subject, message)
}
