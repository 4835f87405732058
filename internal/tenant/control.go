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
	"github.com/outboard-run/outboard/internal/unixsock"
)

// serveControl serves the local API, to which the node forwards.
func (t *Tenant) serveControl(ctx context.Context, ready func()) error {
	listener, err := unixsock.Listen(t.config.ControlSocket())
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

// control is the local API: the part of the node's that is about a tenant's apps, and
// what the node tells.
func (t *Tenant) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/apps", api.Answer(t.postApp))
	mux.HandleFunc("GET /v1/apps", api.Answer(t.getApps))
	mux.HandleFunc("GET /v1/functions", api.Answer(served(t, t.getFunctions)))
	mux.HandleFunc("GET /v1/workflows", api.Answer(served(t, t.getWorkflows)))
	mux.HandleFunc("GET /v1/executions", api.Answer(t.getExecutions))
	mux.HandleFunc("GET /v1/apps/{app}/nodes", api.Answer(t.getAppNodes))
	mux.HandleFunc("POST /v1/apps/{app}/rollback", api.Answer(t.postRollback))
	mux.HandleFunc("POST /v1/apps/{app}/functions/{function}", t.postCall)
	mux.HandleFunc("POST /v1/apps/{app}/workflows/{workflow}/executions", api.Answer(t.postExecution))
	mux.HandleFunc("GET /v1/apps/{app}/executions/{id}", api.Answer(t.getExecution))
	mux.HandleFunc("POST /v1/apps/{app}/executions/{id}/cancel", api.Answer(t.postCancel))
	mux.HandleFunc("GET /v1/apps/{app}/logs", t.getLogs)
	mux.HandleFunc("PUT /v1/members", api.Answer(t.putMembers))
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.metrics, promhttp.HandlerOpts{}))
	return mux
}

// served lets a list of what an app has, where it names one, wait until the app is ready.
func served[T any](t *Tenant, list func(*http.Request) (T, error)) func(*http.Request) (T, error) {
	return func(r *http.Request) (T, error) {
		if app := r.URL.Query().Get("app"); app != "" {
			if _, err := t.awaitCurrent(r.Context(), app); err != nil {
				var none T
				return none, err
			}
		}
		return list(r)
	}
}

// largestRequest bounds what comes with a request by hand.
const largestRequest = 64 << 20

func bodyOf(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, largestRequest))
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

// putMembers is the node telling which nodes there are.
func (t *Tenant) putMembers(r *http.Request) (api.Nothing, error) {
	var nodes []outboard.Node
	if err := readJSON(r, &nodes); err != nil {
		return api.Nothing{}, err
	}
	t.members.set(nodes)
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
