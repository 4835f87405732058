package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/api"
)

// serveControl serves the local API, to which the node forwards requests.
func (t *Tenant) serveControl(ctx context.Context, ready func()) error {
	listener, err := listenForNode(t.config.ControlSocket(), t.log)
	if err != nil {
		return err
	}
	defer os.Remove(t.config.ControlSocket())
	ready()
	if err := api.Serve(ctx, listener, t.control(), 5*time.Second); err != nil {
		return fmt.Errorf("serve the local API: %w", err)
	}
	return nil
}

// control returns the handler of the local API: the part of the node's API that concerns a tenant's
// apps, and the node's notifications to the process.
func (t *Tenant) control() http.Handler {
	mux := http.NewServeMux()
	apps := &appsAPI{tenant: t, apps: t.apps, registry: t.registry}
	apps.register(mux)
	executions := &executionsAPI{tenant: t, apps: t.apps, engine: t.engine, self: t.config.Node}
	executions.register(mux)
	calls := &callsAPI{apps: t.apps, gateway: t.gateway, self: t.config.Node}
	calls.register(mux)
	logs := &logsAPI{tenant: t}
	logs.register(mux)
	mux.HandleFunc("PUT /v1/members", api.Answer(t.putMembers))
	mux.HandleFunc("GET /v1/health", api.Answer(func(*http.Request) (api.Nothing, error) {
		return api.Nothing{}, errors.Join(t.state.Health(), t.engine.Health(), checkDescriptors())
	}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.metrics, promhttp.HandlerOpts{}))
	return mux
}

// afterLoading makes a list that names an app wait until the app is ready.
func afterLoading[T any](apps *deployments, list func(*http.Request) (T, error)) func(*http.Request) (T, error) {
	return func(r *http.Request) (T, error) {
		if app := r.URL.Query().Get("app"); app != "" {
			if _, err := apps.AwaitCurrent(r.Context(), app); err != nil {
				var none T
				return none, err
			}
		}
		return list(r)
	}
}

// maxRequest bounds the body of a request to the local API.
const maxRequest = 64 << 20

func bodyOf(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxRequest))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, outboard.Errorf(outboard.Invalid, "request", "it has more than %v", outboard.Bytes(tooLarge.Limit))
	}
	return body, err
}

func readJSON(r *http.Request, into any) error {
	body, err := bodyOf(r)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return outboard.Errorf(outboard.Invalid, "request", "%w", err)
	}
	return nil
}

// putMembers replaces the members of the pool; the node calls it.
func (t *Tenant) putMembers(r *http.Request) (api.Nothing, error) {
	var nodes []outboard.Node
	if err := readJSON(r, &nodes); err != nil {
		return api.Nothing{}, err
	}
	t.members.Set(nodes)
	return api.Nothing{}, nil
}

func boolOf(r *http.Request, name string) bool {
	value, err := strconv.ParseBool(r.URL.Query().Get(name))
	return err == nil && value
}

func numberOf(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil {
		return 0
	}
	return n
}
