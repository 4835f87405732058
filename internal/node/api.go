package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// serveAPI serves the local API on the node's socket.
func (n *Node) serveAPI(ctx context.Context, ready func()) error {
	path := n.folder.at(client.SocketName)
	listener, err := unixsock.Listen(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	ready()
	// Requests end with the service: a request for a lease lasts as long as the lease.
	if err := api.Serve(ctx, guardedListener{listener, ownsForeign(n), n.log}, n.handler(ctx), 10*time.Second); err != nil {
		return fmt.Errorf("serve %s: %w", filepath.Base(path), err)
	}
	return nil
}

// handler composes the local API. life is that of the service.
func (n *Node) handler(life context.Context) http.Handler {
	mux := http.NewServeMux()
	(&poolAPI{self: n.self, status: n.Status, stop: n.requestStop, pool: n.pool, host: n.host}).register(mux)
	(&networkAPI{self: n.self.ID, pool: n.pool, prober: n.prober}).register(mux)
	(&callsAPI{services: n.services, calls: n.calls, successor: n.successor}).register(mux)
	(&appsAPI{apps: n.apps, tenants: n.tenants, state: n.state}).register(mux)
	(&artifactAPI{store: n.artifacts}).register(mux)
	(&modelsAPI{models: n.models, artifacts: n.artifacts}).register(mux)
	(&jobsAPI{manager: n.jobs.Load().manager}).register(mux)
	(&keysAPI{keys: n.keys}).register(mux)
	leases := &leaseAPI{pool: n.pool, state: n.state, grants: n.grants, log: n.log}
	mux.HandleFunc("POST /v1/leases", func(w http.ResponseWriter, r *http.Request) { leases.post(life, w, r) })
	mux.Handle("GET /healthz", n.report)
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{n.registry, n.calls, n.tenants}, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, // a tenant's process may have been taken over, and return what contradicts the others
	}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		api.Refuse(w, outboard.Errorf(outboard.NotFound, "", "%s %s: the local API has no such path", r.Method, r.URL.Path))
	})
	return membersOnly(n.identity, boundChanges(n.state, mux))
}

// changeLimit is how long a change of the pool's table waits for a state that does not answer.
const changeLimit = 30 * time.Second

// boundedChanges are the beginnings of the paths of changes that the node itself makes. Versions and
// leases have limits of their own.
var boundedChanges = []string{"/v1/tokens", "/v1/model-keys", "/v1/nodes/", "/v1/endpoints"}

// boundChanges ends changes of the pool's table with the state's error in an outage of the state.
func boundChanges(s *state.State, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && slices.ContainsFunc(boundedChanges, func(path string) bool { return strings.HasPrefix(r.URL.Path, path) }) {
			ctx, end := s.WhileAnswered(r.Context(), changeLimit)
			defer end()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

const maxBody = 1 << 20

func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		if limit, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return outboard.Errorf(outboard.Invalid, "request", "it is larger than the %v that are allowed", outboard.Bytes(limit.Limit))
		}
		return outboard.Errorf(outboard.Invalid, "request", "%w", err)
	}
	return nil
}

// notNil returns a list that is [] in JSON even when it is empty.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
