package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/api"
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
	// Requests end with the service: a lease's request is as long as the lease.
	if err := api.Serve(ctx, guarded{listener, n.host.Owns, n.log}, n.handler(ctx), 10*time.Second); err != nil {
		return fmt.Errorf("serve %s: %w", filepath.Base(path), err)
	}
	return nil
}

func (n *Node) handler(life context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", api.Answer(func(*http.Request) (client.Status, error) { return n.Status(), nil }))
	mux.HandleFunc("GET /v1/nodes", api.Answer(n.getNodes))
	mux.HandleFunc("DELETE /v1/nodes/{name}", api.Answer(n.deleteNode))
	mux.HandleFunc("GET /v1/devices", api.Answer(n.getDevices))
	mux.HandleFunc("GET /v1/leases", api.Answer(n.getLeases))
	mux.HandleFunc("GET /v1/sessions", api.Answer(n.getSessions))
	mux.HandleFunc("DELETE /v1/sessions/{id}", api.Answer(n.deleteSession))
	mux.HandleFunc("POST /v1/tokens", api.Answer(n.postToken))
	mux.HandleFunc("POST /v1/stop", api.Answer(n.postStop))
	mux.HandleFunc("POST /v1/leases", func(w http.ResponseWriter, r *http.Request) { n.postLease(life, w, r) })
	n.handleCalls(mux)
	n.handleApps(mux)
	mux.HandleFunc("GET /healthz", api.Answer(func(*http.Request) (string, error) { return "ok", nil }))
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{n.registry, n.calls, n.tenants}, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		api.Refuse(w, outboard.Errorf(outboard.NotFound, "", "%s %s: this node has no such door", r.Method, r.URL.Path))
	})
	return mux
}

const maxBody = 1 << 20

func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return outboard.Errorf(outboard.Invalid, "request", "%w", err)
	}
	return nil
}

func (n *Node) getNodes(*http.Request) ([]outboard.Node, error) { return notNil(n.pool.Nodes()), nil }

func (n *Node) deleteNode(r *http.Request) (api.Nothing, error) {
	return api.Nothing{}, n.pool.Remove(r.Context(), outboard.NodeID(r.PathValue("name")))
}

func (n *Node) getLeases(*http.Request) ([]outboard.Lease, error) {
	return notNil(n.pool.Leases()), nil
}

func (n *Node) getDevices(r *http.Request) ([]client.Device, error) {
	selector, err := outboard.ParseSelector(r.URL.Query().Get("selector"))
	if err != nil {
		return nil, err
	}
	all := []client.Device{}
	for _, d := range n.pool.Devices() {
		if selector.Match(d.Device) {
			all = append(all, client.Device{Device: d.Device, Free: d.Free, Leases: d.Grants})
		}
	}
	return all, nil
}

func (n *Node) getSessions(*http.Request) ([]client.Session, error) {
	all := []client.Session{}
	for _, s := range n.host.Sessions() {
		all = append(all, client.Session{
			ID: s.ID, Lease: s.Lease.Lease, Device: s.Device.ID, Holder: s.Lease.Holder, Program: s.Lease.Program,
			Worker: s.Worker(), Via: s.Via, Started: s.Started, Stats: statsOf(s),
		})
	}
	return all, nil
}

// statsOf is what a session's worker said last, nil if nothing.
func statsOf(s *lend.Session) *client.SessionStats {
	stats := s.Stats()
	if stats == nil {
		return nil
	}
	return &client.SessionStats{Memory: stats.Memory, Calls: stats.Calls, BytesIn: stats.BytesIn, BytesOut: stats.BytesOut}
}

func (n *Node) deleteSession(r *http.Request) (api.Nothing, error) {
	id := outboard.SessionID(r.PathValue("id"))
	// The host logs the session's end, with this reason.
	return api.Nothing{}, n.host.Kill(id, outboard.Errorf(outboard.SessionLost, "session", "it was killed on the device's node by `outboard sessions kill`"))
}

func (n *Node) postStop(*http.Request) (api.Nothing, error) {
	n.stopOnce.Do(func() { close(n.stop) })
	return api.Nothing{}, nil
}

func (n *Node) postToken(r *http.Request) (client.Token, error) {
	request := client.TokenRequest{}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&request); err != nil {
		return client.Token{}, outboard.Errorf(outboard.Invalid, "request", "%w", err)
	}
	ttl := time.Duration(request.TTL)
	if ttl == 0 {
		ttl = time.Hour
	}
	token, err := n.pool.NewToken(r.Context(), ttl)
	return client.Token{Token: token, Addr: n.self.Addr, Expires: time.Now().Add(ttl).UTC()}, err
}

// notNil makes an empty list an empty list in JSON too.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
