package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/fabric/connmetrics"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/unixsock"
)

func (n *Node) openServices(ctx context.Context) (lifecycle.Resource, error) {
	r, err := services.Open(ctx, services.Options{
		State: n.state, Members: n.pool, Self: n.self.ID, Boot: n.self.Boot,
		Logger: n.opts.Log.With("plane", "pool", "node", n.self.ID),
	})
	n.services = r
	return r, err
}

// openCalls starts the process that carries this node's calls.
func (n *Node) openCalls(ctx context.Context) (lifecycle.Resource, error) {
	log := n.opts.Log.With("plane", "fabric", "node", n.self.ID)
	programs, err := n.listenPrograms(ctx)
	if err != nil {
		return nil, err
	}
	port, err := n.listenPlain(ctx)
	if err != nil {
		return nil, errors.Join(err, programs.Close())
	}
	h, err := calls.OpenHost(ctx, calls.HostOptions{
		Config: n.callsConfig(log), Launch: n.launcher(log), State: n.state, Registry: n.services,
		Programs: programs, Plain: port, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	n.calls = h
	if port != nil {
		log.Info("plain gRPC is served", "addr", port.Addr().String())
	}
	return closed{h, n.folder.at(client.CallsSocketName)}, nil
}

// closed is the calls' host, with the socket that goes with it.
type closed struct {
	*calls.Host
	socket string
}

// Close implements lifecycle.Resource.
func (c closed) Close() error {
	err := c.Host.Close()
	if removed := os.Remove(c.socket); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

func (n *Node) callsConfig(log *slog.Logger) calls.Config {
	c := calls.Config{
		Self: n.self.ID, Boot: n.self.Boot, Identity: n.folder.at(poolDir), NATS: n.opts.NATS,
		Heartbeat: n.opts.Heartbeat, DeadAfter: n.opts.DeadAfter, Slow: n.opts.SlowCall, Level: n.logLevel(log),
	}
	// The process has this one's working folder, but not for ever.
	c.Creds = absolute(n.opts.Creds)
	return c
}

// launcher says how the process is started: as a helper of the node, or within this
// process.
func (n *Node) launcher(log *slog.Logger) helper.Launcher {
	if n.opts.CallsInside {
		return calls.InProcess(calls.ProcessOptions{Version: n.opts.Version, Logger: log})
	}
	return helper.Command(append(slices.Clone(n.opts.Helper), "calls"), log)
}

// listenPrograms opens the socket for programs. Where a node died a moment ago, its
// process may still have it.
func (n *Node) listenPrograms(ctx context.Context) (*net.UnixListener, error) {
	path := n.folder.at(client.CallsSocketName)
	limit, cancel := context.WithTimeout(ctx, socketLimit)
	defer cancel()
	for {
		l, err := unixsock.Listen(path)
		if err == nil || limit.Err() != nil {
			return l, err
		}
		pause(limit)
	}
}

// socketLimit is how long the process of a node that has died may take to notice.
const socketLimit = 3 * time.Second

const defaultGRPC = "127.0.0.1:7435"

// listenPlain opens the port for plain gRPC, nil for none.
func (n *Node) listenPlain(ctx context.Context) (*net.TCPListener, error) {
	return listenLocal(ctx, n.opts.GRPC, defaultGRPC, "--grpc")
}

// listenLocal opens a port for this machine's programs, nil for none. Nobody has
// asked for the default one: where another node has it, any will do.
func listenLocal(ctx context.Context, addr, standard, flag string) (*net.TCPListener, error) {
	var config net.ListenConfig
	switch addr {
	case "none":
		return nil, nil //nolint:nilnil // no port and no error
	case "":
		if l, err := config.Listen(ctx, "tcp", standard); err == nil {
			return tcp(l)
		}
		l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return tcp(l)
	}
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, outboard.Errorf(outboard.Conflict, "", "%w: name another address with %s, or none", err, flag)
	}
	return tcp(l)
}

func tcp(l net.Listener) (*net.TCPListener, error) {
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: no TCP", l.Addr()), l.Close())
	}
	return t, nil
}

func (n *Node) framed(config *tls.Config) framed.Options {
	return framed.Options{TLS: config, DeadAfter: n.opts.DeadAfter, Logger: n.log, Observer: connmetrics.Observer(n.registry)}
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
	mux.HandleFunc("GET /v1/services", api.Answer(n.getServices))
	mux.HandleFunc("GET /v1/endpoints", api.Answer(n.getEndpoints))
	mux.HandleFunc("POST /v1/endpoints", n.postEndpoint)
	mux.HandleFunc("DELETE /v1/endpoints", api.Answer(n.deleteEndpoint))
	mux.HandleFunc("GET /v1/policies", api.Answer(n.getPolicies))
	mux.HandleFunc("POST /v1/policies", n.postPolicies)
	mux.HandleFunc("POST /v1/policies/rollback", api.Answer(n.postRollback))
	mux.HandleFunc("GET /v1/calls", api.Answer(n.getCalls))
	mux.HandleFunc("POST /v1/upgrade", n.postUpgrade)
}

func (n *Node) getServices(*http.Request) ([]client.Service, error) {
	all := map[string]*client.Service{}
	for _, e := range n.services.Endpoints() {
		for _, name := range e.Services {
			s := all[name]
			if s == nil {
				s = &client.Service{Name: name, Methods: n.services.Methods(name)}
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
	api.Answer(func(r *http.Request) (client.Endpoint, error) {
		var e client.Endpoint
		if err := readBody(w, r, &e); err != nil {
			return e, err
		}
		made, err := n.calls.AddServer(r.Context(), services.Endpoint(e))
		return client.Endpoint(made), err
	})(w, r)
}

func (n *Node) deleteEndpoint(r *http.Request) (api.Nothing, error) {
	return api.Nothing{}, n.services.Remove(r.Context(), r.URL.Query().Get("id"))
}

func (n *Node) getPolicies(r *http.Request) (client.Policies, error) {
	inForce, err := n.calls.Policies(r.Context())
	if err != nil {
		return client.Policies{}, err
	}
	p := client.Policies{Policies: inForce, Versions: []client.PolicyVersion{}}
	for _, v := range n.services.Policies().Versions {
		p.Versions = append(p.Versions, client.PolicyVersion(v))
	}
	return p, nil
}

func (n *Node) postPolicies(w http.ResponseWriter, r *http.Request) {
	api.Answer(func(r *http.Request) (client.PolicyVersion, error) {
		var f client.PolicyFile
		if err := readBody(w, r, &f); err != nil {
			return client.PolicyVersion{}, err
		}
		if err := n.calls.Parse(r.Context(), f.Name, []byte(f.Text)); err != nil {
			return client.PolicyVersion{}, err
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

func (n *Node) getCalls(r *http.Request) ([]client.Calls, error) { return n.calls.Table(r.Context()) }

func (n *Node) postUpgrade(w http.ResponseWriter, r *http.Request) {
	api.Answer(func(r *http.Request) (client.Upgrade, error) {
		var request client.UpgradeRequest
		if err := readBody(w, r, &request); err != nil {
			return client.Upgrade{}, err
		}
		binary, err := n.successor(request.Binary)
		if err != nil {
			return client.Upgrade{}, err
		}
		return n.calls.Upgrade(r.Context(), binary)
	})(w, r)
}

// successor is the program that takes over: what was said, or this node's own as it
// is on disk now.
func (n *Node) successor(said string) (string, error) {
	switch {
	case n.opts.CallsInside:
		return "", nil
	case said != "" && !filepath.IsAbs(said):
		return "", outboard.Errorf(outboard.Invalid, "upgrade", "%s: name the program with its whole path", said)
	case said != "":
		return said, nil
	case n.opts.Helper[0] != ownProgram:
		return n.opts.Helper[0], nil
	}
	return os.Executable()
}
