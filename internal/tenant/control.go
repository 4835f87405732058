package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// serveControl serves the local API, to which the node forwards.
func (t *Tenant) serveControl(ctx context.Context, ready func()) error {
	listener, err := unixsock.Listen(t.config.ControlSocket())
	if err != nil {
		return err
	}
	defer os.Remove(t.config.ControlSocket())
	server := &http.Server{
		Handler: t.control(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	ready()
	select {
	case err := <-done:
		return fmt.Errorf("serve the local API: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if server.Shutdown(end) != nil {
		_ = server.Close() // somebody follows logs
	}
	<-done
	return nil
}

// control is the local API: the part of the node's that is about a tenant's apps, and
// what the node tells.
func (t *Tenant) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/apps", reply(t.postApp))
	mux.HandleFunc("GET /v1/apps", reply(t.getApps))
	mux.HandleFunc("GET /v1/functions", reply(t.getFunctions))
	mux.HandleFunc("GET /v1/workflows", reply(t.getWorkflows))
	mux.HandleFunc("GET /v1/executions", reply(t.getExecutions))
	mux.HandleFunc("POST /v1/apps/{app}/rollback", reply(t.postRollback))
	mux.HandleFunc("POST /v1/apps/{app}/functions/{function}", t.postCall)
	mux.HandleFunc("POST /v1/apps/{app}/workflows/{workflow}/executions", reply(t.postExecution))
	mux.HandleFunc("GET /v1/apps/{app}/executions/{id}", reply(t.getExecution))
	mux.HandleFunc("POST /v1/apps/{app}/executions/{id}/cancel", reply(t.postCancel))
	mux.HandleFunc("GET /v1/apps/{app}/logs", t.getLogs)
	mux.HandleFunc("PUT /v1/members", reply(t.putMembers))
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.metrics, promhttp.HandlerOpts{}))
	return mux
}

// reply makes a handler of a function that gives what to send.
func reply[T any](f func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := f(r)
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the client hung up
	}
}

func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(client.HTTPStatus(outboard.KindOf(err)))
	_ = json.NewEncoder(w).Encode(client.FailureOf(err)) // the client hung up
}

// nothing is the answer of what has none.
type nothing struct{}

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
func (t *Tenant) putMembers(r *http.Request) (nothing, error) {
	var nodes []outboard.Node
	if err := readJSON(r, &nodes); err != nil {
		return nothing{}, err
	}
	t.members.set(nodes)
	return nothing{}, nil
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
