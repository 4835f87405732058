package node

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/pool"
)

// poolAPI is the part of the local API about the node, the pool and its sessions.
type poolAPI struct {
	self   outboard.Node
	status func() client.Status
	stop   func()
	pool   *pool.Pool
	host   *lend.Host
}

func (a *poolAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/status", api.Answer(func(*http.Request) (client.Status, error) { return a.status(), nil }))
	mux.HandleFunc("GET /v1/nodes", api.Answer(a.getNodes))
	mux.HandleFunc("DELETE /v1/nodes/{name}", api.Answer(a.deleteNode))
	mux.HandleFunc("GET /v1/devices", api.Answer(a.getDevices))
	mux.HandleFunc("GET /v1/leases", api.Answer(a.getLeases))
	mux.HandleFunc("GET /v1/sessions", api.Answer(a.getSessions))
	mux.HandleFunc("DELETE /v1/sessions/{id}", api.Answer(a.deleteSession))
	mux.HandleFunc("POST /v1/tokens", api.Answer(a.postToken))
	mux.HandleFunc("POST /v1/stop", api.Answer(a.postStop))
}

func (a *poolAPI) getNodes(*http.Request) ([]outboard.Node, error) {
	return notNil(a.pool.Nodes()), nil
}

func (a *poolAPI) deleteNode(r *http.Request) (client.RemovedNode, error) {
	name := outboard.NodeID(r.PathValue("name"))
	away := pool.DefaultAway
	if text := r.URL.Query().Get("away"); text != "" {
		var err error
		if away, err = time.ParseDuration(text); err != nil {
			return client.RemovedNode{}, outboard.Errorf(outboard.Invalid, "remove a node", "away: %w", err)
		}
	}
	if err := a.pool.Remove(r.Context(), name, away); err != nil {
		return client.RemovedNode{}, err
	}
	return client.RemovedNode{Admitted: pool.AdmittedBy(a.pool, name)}, nil
}

func (a *poolAPI) getLeases(*http.Request) ([]outboard.Lease, error) {
	return notNil(a.pool.Leases()), nil
}

func (a *poolAPI) getDevices(r *http.Request) ([]client.Device, error) {
	selector, err := outboard.ParseSelector(r.URL.Query().Get("selector"))
	if err != nil {
		return nil, err
	}
	all := []client.Device{}
	for _, d := range a.pool.Devices() {
		if selector.Match(d.Device) {
			all = append(all, client.Device{Device: d.Device, Free: d.Free, Leases: d.Grants})
		}
	}
	return all, nil
}

func (a *poolAPI) getSessions(*http.Request) ([]client.Session, error) {
	all := []client.Session{}
	for _, s := range a.host.Sessions() {
		all = append(all, client.Session{
			ID: s.ID, Lease: s.Lease.Lease, Device: s.Device.ID, Holder: s.Lease.Holder, Program: s.Lease.Program,
			Worker: s.Worker(), Via: s.Via, Started: s.Started, Stats: statsOf(s),
		})
	}
	return all, nil
}

// statsOf returns the last statistics of a session's worker, nil if there are none.
func statsOf(s *lend.Session) *client.SessionStats {
	stats := s.Stats()
	if stats == nil {
		return nil
	}
	return &client.SessionStats{Memory: stats.Memory, Calls: stats.Calls, BytesIn: stats.BytesIn, BytesOut: stats.BytesOut}
}

func (a *poolAPI) deleteSession(r *http.Request) (api.Nothing, error) {
	id := outboard.SessionID(r.PathValue("id"))
	// The host logs the session's end, with this reason.
	return api.Nothing{}, a.host.Kill(id, outboard.Errorf(outboard.SessionLost, "session", "it was killed on the device's node by `outboard sessions kill`"))
}

func (a *poolAPI) postStop(*http.Request) (api.Nothing, error) {
	a.stop()
	return api.Nothing{}, nil
}

func (a *poolAPI) postToken(r *http.Request) (client.Token, error) {
	request := client.TokenRequest{}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&request); err != nil {
		return client.Token{}, outboard.Errorf(outboard.Invalid, "request", "%w", err)
	}
	ttl := time.Duration(request.TTL)
	if ttl == 0 {
		ttl = time.Hour
	}
	token, err := a.pool.NewToken(r.Context(), ttl)
	return client.Token{Token: token, Addr: a.self.Addr, Expires: time.Now().Add(ttl).UTC()}, err
}
