package calls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// transports holds the transport of every endpoint, and the connections behind them: to programs,
// to other nodes, to sibling processes, and to gRPC servers that this node speaks for.
//
// While one process takes a node's calls over from another both have programs, and each reaches the
// other's over a link: they are siblings.
type transports struct {
	registry *services.Registry
	members  services.Members
	self     outboard.NodeID
	process  int
	link     func(ctx context.Context, process int) (net.Conn, error)
	tls      func(outboard.Node) *tls.Config
	dialed   func(outboard.Node, net.Conn) error
	framed   framed.Options
	log      *slog.Logger
	life     *lifetime
	programs *programs

	mu       sync.Mutex // before programs.mu
	nodes    map[outboard.NodeID]*peer
	siblings map[int]*peer
	servers  map[string]call.Transport // by address
}

func newTransports(opts Options, life *lifetime, programs *programs) *transports {
	return &transports{
		registry: opts.Registry, members: opts.Members, self: opts.Self, process: opts.Process, link: opts.Link,
		tls: opts.TLS, dialed: opts.Dialed, framed: opts.Framed, log: opts.Logger, life: life, programs: programs,
		nodes: map[outboard.NodeID]*peer{}, siblings: map[int]*peer{}, servers: map[string]call.Transport{},
	}
}

// update calls f with a function that returns the transport of an endpoint, nil if there is none
// now, and then closes the connections of endpoints that f did not resolve.
func (t *transports) update(f func(resolve func(services.Endpoint) call.Transport)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	used := make(map[call.Transport]bool)
	f(func(e services.Endpoint) call.Transport {
		transport := t.resolve(e)
		if transport != nil {
			used[transport] = true
		}
		return transport
	})
	t.releaseUnused(used)
}

// local returns the transport of an endpoint of this node, nil if there is none.
func (t *transports) local(id string) call.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.registry.Endpoint(id); ok && e.Node == t.self {
		return t.resolve(e)
	}
	return t.programs.transport(id) // offered, and not in the table yet
}

// resolve returns the transport of an endpoint. The mutex is held.
func (t *transports) resolve(e services.Endpoint) call.Transport {
	switch {
	case e.Node != t.self:
		return t.onNode(e)
	case e.Address != "":
		return t.server(e.Address)
	}
	if transport := t.programs.transport(e.ID); transport != nil {
		return transport
	}
	if e.Process == t.process {
		return t.programs.pending(e)
	}
	return t.onSibling(e)
}

// onNode returns the transport of another node's endpoint. The mutex is held.
func (t *transports) onNode(e services.Endpoint) call.Transport {
	node := t.nodes[e.Node]
	if node == nil {
		node = newPeer("node "+string(e.Node), t.life, func(ctx context.Context) (*remote.Conn, error) { return t.dialNode(ctx, e.Node) })
		t.nodes[e.Node] = node
	}
	return node.endpoint(e.ID, func() *peerEndpoint {
		return &peerEndpoint{id: e.ID, locate: func() (call.Transport, *peer) { return nil, node }}
	})
}

func (t *transports) dialNode(ctx context.Context, id outboard.NodeID) (*remote.Conn, error) {
	node, ok := t.members.Node(id)
	if !ok {
		return nil, errors.New("it is not in the pool")
	}
	o := t.framed
	if t.dialed != nil {
		o.Dialed = func(nc net.Conn) error { return t.dialed(node, nc) }
	}
	return remote.Dial(ctx, node.Addr, t.tls(node), remote.Options{Trusted: true, Logger: t.log, Framed: o})
}

// onSibling returns the transport of an endpoint whose program is connected to a sibling process,
// nil if it is not. The mutex is held.
func (t *transports) onSibling(e services.Endpoint) call.Transport {
	if t.link == nil || e.Process == 0 {
		return nil
	}
	return t.sibling(e.Process).endpoint(e.ID, func() *peerEndpoint {
		return &peerEndpoint{id: e.ID, sibling: true, locate: func() (call.Transport, *peer) { return t.locate(e) }}
	})
}

// locate returns the connection of an endpoint's program if this process has it by now, or else the
// sibling that has it according to the table.
func (t *transports) locate(e services.Endpoint) (call.Transport, *peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if transport := t.programs.transport(e.ID); transport != nil {
		return transport, nil
	}
	if now, ok := t.registry.Endpoint(e.ID); ok && now.Process != t.process {
		e = now
	}
	return nil, t.sibling(e.Process)
}

// sibling returns another process of this node. The mutex is held.
func (t *transports) sibling(process int) *peer {
	p := t.siblings[process]
	if p == nil {
		p = newPeer(fmt.Sprintf("process %d", process), t.life, func(ctx context.Context) (*remote.Conn, error) { return t.dialSibling(ctx, process) })
		t.siblings[process] = p
	}
	return p
}

func (t *transports) dialSibling(ctx context.Context, process int) (*remote.Conn, error) {
	nc, err := t.link(ctx, process)
	if err != nil {
		return nil, err
	}
	return remote.New(framed.Client(nc, t.siblingOptions()), remote.Options{Trusted: true, Logger: t.log}), nil
}

// siblingOptions returns the options of links. The peer of a link is not authenticated: the node
// has made the link.
func (t *transports) siblingOptions() framed.Options {
	return framed.Options{Logger: t.framed.Logger, DeadAfter: t.framed.DeadAfter, MaxStreams: t.framed.MaxStreams}
}

// server returns the connection to a gRPC server. The mutex is held.
func (t *transports) server(address string) call.Transport {
	if s := t.servers[address]; s != nil {
		return s
	}
	s, err := plain.Dial(address, plain.Options{Logger: t.log})
	if err != nil {
		t.log.Error("gRPC server is not reached", "address", address, "error", err)
		return nil
	}
	t.servers[address] = s
	return s
}

// releaseUnused closes the connections that no used transport needs. The mutex is held.
func (t *transports) releaseUnused(used map[call.Transport]bool) {
	for address, s := range t.servers {
		if !used[s] {
			delete(t.servers, address)
			t.life.Go(func() { _ = s.Close() })
		}
	}
	retireUnused(t.nodes, used)
	retireUnused(t.siblings, used)
}

func retireUnused[K comparable](peers map[K]*peer, used map[call.Transport]bool) {
	for key, p := range peers {
		if p.retainEndpoints(used) == 0 {
			delete(peers, key)
			p.retire()
		}
	}
}

// close closes all connections but those of programs.
func (t *transports) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	for _, p := range t.nodes {
		err = errors.Join(err, p.close())
	}
	for _, p := range t.siblings {
		err = errors.Join(err, p.close())
	}
	for _, s := range t.servers {
		err = errors.Join(err, s.Close())
	}
	return err
}
