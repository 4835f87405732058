package node

import (
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
	"github.com/outboard-run/outboard/internal/app/manifest"
)

// handleApps serves what the local API has about apps. What concerns one app goes to
// its tenant's process.
func (n *Node) handleApps(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/apps", n.postApp)
	mux.HandleFunc("GET /v1/apps", gather[client.App](n))
	mux.HandleFunc("GET /v1/functions", gather[client.Function](n))
	mux.HandleFunc("GET /v1/workflows", gather[client.Workflow](n))
	mux.HandleFunc("GET /v1/executions", gather[client.Execution](n))
	mux.HandleFunc("/v1/apps/{app}/", n.forward)
	mux.HandleFunc("GET /v1/apps/{app}/nodes", n.getAppNodes)
	mux.HandleFunc("DELETE /v1/apps/{app}", api.Answer(n.deleteApp))
	mux.HandleFunc("POST /v1/subjects/{subject}", api.Answer(n.postMessage))
	n.handleArtifacts(mux)
}

// forward hands a request on to the process of an app's tenant.
func (n *Node) forward(w http.ResponseWriter, r *http.Request) {
	app := r.PathValue("app")
	tenant := n.tenantOf(app)
	if tenant == "" {
		api.Refuse(w, outboard.Errorf(outboard.NotFound, "", "there is no app %q: see `outboard apps`", app))
		return
	}
	n.tenants.Proxy(tenant, api.Refuse).ServeHTTP(w, r)
}

// heardLimit is how long this node may take to hear of what it is asked for.
const heardLimit = 5 * time.Second

// getAppNodes forwards who asks for a version that a tenant's process has applied, of which
// this node may hear a moment later.
func (n *Node) getAppNodes(w http.ResponseWriter, r *http.Request) {
	if version, err := strconv.Atoi(r.URL.Query().Get("version")); err == nil && version > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), heardLimit)
		defer cancel()
		if err := n.apps.Await(ctx, r.PathValue("app"), version); err != nil {
			api.Refuse(w, err)
			return
		}
	}
	n.forward(w, r)
}

// deleteApp ends an app. The node does so itself: with a tenant's last app its process
// ends, before it could answer.
func (n *Node) deleteApp(r *http.Request) (api.Nothing, error) {
	return api.Nothing{}, n.apps.Remove(r.Context(), r.PathValue("app"))
}

// postApp hands a deployment to the process of the tenant that the manifest names.
func (n *Node) postApp(w http.ResponseWriter, r *http.Request) {
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
	if tenant := n.tenantOf(m.App.Name); tenant != "" && tenant != m.App.Tenant {
		api.Refuse(w, outboard.Errorf(outboard.Conflict, "deploy", "app %s belongs to the tenant %s: remove it first, or name this one otherwise", m.App.Name, tenant))
		return
	}
	r.Body = io.NopCloser(readerOf(body))
	n.tenants.Proxy(m.App.Tenant, api.Refuse).ServeHTTP(w, r)
}

// problemsOf makes a manifest's problems an error that clients can read.
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

// gather makes a handler that asks the processes of all tenants for their part of a
// list, or that of the app's tenant where the request names one.
func gather[T any](n *Node) http.HandlerFunc {
	return api.Answer(func(r *http.Request) ([]T, error) {
		tenants := n.tenants.Tenants()
		if app := r.URL.Query().Get("app"); app != "" {
			tenant := n.tenantOf(app)
			if tenant == "" {
				return nil, outboard.Errorf(outboard.NotFound, "", "there is no app %q: see `outboard apps`", app)
			}
			tenants = []string{tenant}
		}
		all := []T{}
		for _, tenant := range tenants {
			var part []T
			if err := n.tenants.Get(r.Context(), tenant, r.URL.RequestURI(), &part); err != nil {
				return nil, err
			}
			all = append(all, part...)
		}
		return all, nil
	})
}

// postMessage publishes on a subject.
func (n *Node) postMessage(r *http.Request) (api.Nothing, error) {
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
	return api.Nothing{}, n.state.Publish(ctx, subject, message)
}
