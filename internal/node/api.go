package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
	// Requests end with the service: a lease's request is as long as the lease.
	server := &http.Server{
		Handler:           n.handler(ctx),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(guarded{listener, n.host.Owns, n.log}) }()
	ready()
	select {
	case err := <-done:
		return fmt.Errorf("serve %s: %w", filepath.Base(path), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = server.Shutdown(end)
	if serve := <-done; !errors.Is(serve, http.ErrServerClosed) {
		err = errors.Join(err, serve)
	}
	return err
}

func (n *Node) handler(life context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", answer(func(*http.Request) (client.Status, error) { return n.Status(), nil }))
	mux.HandleFunc("GET /v1/nodes", answer(n.getNodes))
	mux.HandleFunc("GET /v1/devices", answer(n.getDevices))
	mux.HandleFunc("GET /v1/leases", answer(n.getLeases))
	mux.HandleFunc("GET /v1/sessions", answer(n.getSessions))
	mux.HandleFunc("DELETE /v1/sessions/{id}", answer(n.deleteSession))
	mux.HandleFunc("POST /v1/tokens", answer(n.postToken))
	mux.HandleFunc("POST /v1/stop", answer(n.postStop))
	mux.HandleFunc("POST /v1/leases", func(w http.ResponseWriter, r *http.Request) { n.postLease(life, w, r) })
	n.handleCalls(mux)
	n.handleApps(mux)
	mux.HandleFunc("GET /healthz", answer(func(*http.Request) (string, error) { return "ok", nil }))
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{n.registry, n.calls, n.tenants}, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, outboard.Errorf(outboard.NotFound, "", "%s %s: this node has no such door", r.Method, r.URL.Path))
	})
	return mux
}

// answer makes a handler of a function that gives what to send.
func answer[T any](f func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := f(r)
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the client hung up
	}
}

func writeError(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(client.HTTPStatus(outboard.KindOf(err)))
	_ = json.NewEncoder(w).Encode(client.FailureOf(err)) // the client hung up
}

// nothing is the answer of what has none.
type nothing struct{}

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

func (n *Node) deleteSession(r *http.Request) (nothing, error) {
	id := outboard.SessionID(r.PathValue("id"))
	// The host logs the session's end, with this reason.
	return nothing{}, n.host.Kill(id, outboard.Errorf(outboard.SessionLost, "session", "it was killed on the device's node by `outboard sessions kill`"))
}

func (n *Node) postStop(*http.Request) (nothing, error) {
	n.stopOnce.Do(func() { close(n.stop) })
	return nothing{}, nil
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
