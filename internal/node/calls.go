package node

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric/framed"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/services"
)

func (n *Node) openServices(ctx context.Context) (lifecycle.Resource, error) {
	r, err := services.Open(ctx, services.Options{
		State: n.state, Members: n.pool, Self: n.self.ID, Boot: n.self.Boot,
		Logger: n.opts.Log.With("plane", "pool", "node", n.self.ID),
	})
	n.services = r
	return r, err
}

func (n *Node) openCalls(ctx context.Context) (lifecycle.Resource, error) {
	log := n.opts.Log.With("plane", "fabric", "node", n.self.ID)
	port, err := n.listenPlain(ctx)
	if err != nil {
		return nil, err
	}
	p, err := calls.Open(ctx, calls.Options{
		Registry: n.services, Members: n.pool, Self: n.self.ID,
		Socket: n.folder.at(client.CallsSocketName), Plain: port,
		TLS: func(to outboard.Node) *tls.Config {
			return n.identity.ClientTLS(to.ID, to.Fingerprint, calls.Protocol)
		},
		Framed: n.framed(nil), Logger: log, Metrics: n.registry, Slow: n.opts.SlowCall,
	})
	if err != nil {
		return nil, err
	}
	n.calls = p
	if port != nil {
		log.Info("plain gRPC is served", "addr", port.Addr().String())
	}
	return p, nil
}

const defaultGRPC = "127.0.0.1:7435"

// listenPlain opens the port for plain gRPC, nil for none. Nobody has asked for the
// default one: where another node has it, any will do.
func (n *Node) listenPlain(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	switch n.opts.GRPC {
	case "none":
		return nil, nil //nolint:nilnil // no port and no error
	case "":
		if l, err := config.Listen(ctx, "tcp", defaultGRPC); err == nil {
			return l, nil
		}
		return config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	l, err := config.Listen(ctx, "tcp", n.opts.GRPC)
	if err != nil {
		return nil, outboard.Errorf(outboard.Conflict, "", "%w: name another address with --grpc, or none", err)
	}
	return l, nil
}

func (n *Node) framed(config *tls.Config) framed.Options {
	return framed.Options{TLS: config, DeadAfter: n.opts.DeadAfter, Logger: n.log, Metrics: n.registry}
}

// serveCalls serves the calls that another node forwards.
func (n *Node) serveCalls(ctx context.Context, nc net.Conn) error {
	conn := framed.Server(nc, n.framed(n.identity.ServerTLS(calls.Protocol)))
	peer, err := n.greet(ctx, conn)
	if err == nil && peer.Session {
		// Nodes are believed when they say for whom they call; a program is not.
		err = outboard.Errorf(outboard.Denied, "calls", "a session of node %s is no node", peer.Node)
	}
	if err != nil {
		_ = conn.Close()
		return err
	}
	return n.calls.ServePeer(ctx, conn, peer.Node)
}

// greet waits for a peer's handshake and says who it is.
func (n *Node) greet(ctx context.Context, conn *framed.Conn) (authority.Peer, error) {
	limit, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err := conn.Handshake(limit); err != nil {
		return authority.Peer{}, err
	}
	return authority.VerifyPeer(n.identity.Root, conn.Peer(), time.Now())
}

// ---- the local API

func (n *Node) handleCalls(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/services", answer(n.getServices))
	mux.HandleFunc("GET /v1/endpoints", answer(n.getEndpoints))
	mux.HandleFunc("POST /v1/endpoints", n.postEndpoint)
	mux.HandleFunc("DELETE /v1/endpoints", answer(n.deleteEndpoint))
	mux.HandleFunc("GET /v1/policies", answer(n.getPolicies))
	mux.HandleFunc("POST /v1/policies", n.postPolicies)
	mux.HandleFunc("POST /v1/policies/rollback", answer(n.postRollback))
	mux.HandleFunc("GET /v1/calls", answer(n.getCalls))
}

func (n *Node) getServices(*http.Request) ([]client.Service, error) {
	all := map[string]*client.Service{}
	for _, e := range n.services.Endpoints() {
		for _, name := range e.Services {
			s := all[name]
			if s == nil {
				s = &client.Service{Name: name, Methods: n.calls.Methods(name)}
				all[name] = s
			}
			s.Endpoints++
			if !slices.Contains(s.Nodes, e.Node) {
				s.Nodes = append(s.Nodes, e.Node)
			}
		}
	}
	list := []client.Service{}
	for _, s := range all {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b client.Service) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (n *Node) getEndpoints(r *http.Request) ([]client.Endpoint, error) {
	service := r.URL.Query().Get("service")
	list := []client.Endpoint{}
	for _, e := range n.services.Endpoints() {
		if service == "" || slices.Contains(e.Services, service) {
			list = append(list, client.Endpoint(e))
		}
	}
	return list, nil
}

func (n *Node) postEndpoint(w http.ResponseWriter, r *http.Request) {
	answer(func(r *http.Request) (client.Endpoint, error) {
		var e client.Endpoint
		if err := readBody(w, r, &e); err != nil {
			return e, err
		}
		made, err := n.calls.Speak(r.Context(), services.Endpoint(e))
		return client.Endpoint(made), err
	})(w, r)
}

func (n *Node) deleteEndpoint(r *http.Request) (nothing, error) {
	return nothing{}, n.services.Withdraw(r.Context(), r.URL.Query().Get("id"))
}

func (n *Node) getPolicies(*http.Request) (client.Policies, error) {
	p := client.Policies{Policies: n.calls.Policies(), Versions: []client.PolicyVersion{}}
	for _, v := range n.services.Policies().Versions {
		p.Versions = append(p.Versions, client.PolicyVersion(v))
	}
	return p, nil
}

func (n *Node) postPolicies(w http.ResponseWriter, r *http.Request) {
	answer(func(r *http.Request) (client.PolicyVersion, error) {
		var f client.PolicyFile
		if err := readBody(w, r, &f); err != nil {
			return client.PolicyVersion{}, err
		}
		if _, err := n.calls.Parse(f.Name, []byte(f.Text)); err != nil {
			return client.PolicyVersion{}, outboard.Errorf(outboard.Invalid, "", "%w", err)
		}
		if f.Check {
			return client.PolicyVersion{Name: f.Name, Text: f.Text}, nil
		}
		v, err := n.services.Apply(r.Context(), f.Name, f.Text)
		return client.PolicyVersion(v), err
	})(w, r)
}

func (n *Node) postRollback(r *http.Request) (client.PolicyVersion, error) {
	v, err := n.services.Rollback(r.Context())
	return client.PolicyVersion(v), err
}

func (n *Node) getCalls(*http.Request) ([]client.Calls, error) { return n.calls.Table(), nil }
