package node

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/network"
)

// newProber returns the service that measures the network to other nodes.
func (n *Node) newProber() *network.Prober {
	paths := &probePaths{
		identity: n.identity, conns: make(map[outboard.NodeID]*probeConn), refused: make(map[outboard.NodeID]time.Time),
	}
	return network.New(network.Options{
		Self: n.self.ID, Budget: n.opts.ProbeBudget, Metrics: n.registry, Log: n.log,
		Peers:   func() []network.Peer { return probePeers(n.pool) },
		Probe:   paths.probe,
		Publish: n.pool.PublishLinks,
	})
}

// probePeers returns the other nodes of a pool.
func probePeers(p *pool.Pool) []network.Peer {
	self := p.Self().ID
	leased := make(map[outboard.NodeID]bool)
	for _, l := range p.Leases() {
		name, _, _ := strings.Cut(string(l.Device), "/")
		owner := outboard.NodeID(name)
		switch {
		case owner == self:
			leased[l.Holder] = true
		case l.Holder == self:
			leased[owner] = true
		}
	}
	var peers []network.Peer
	for _, n := range p.Nodes() {
		if n.ID != self && n.Addr != "" {
			peers = append(peers, network.Peer{ID: n.ID, Addr: n.Addr, Fingerprint: n.Fingerprint, Lends: len(n.Devices) > 0, Leased: leased[n.ID]})
		}
	}
	return peers
}

// probePaths keeps a connection to each node that is probed, so that a probe costs no handshake.
// Only the prober uses it.
type probePaths struct {
	identity *authority.Identity

	mu    sync.Mutex
	conns map[outboard.NodeID]*probeConn
	// refused are the nodes whose version does not serve these probes, with the time of the refusal.
	refused map[outboard.NodeID]time.Time
}

type probeConn struct {
	*tls.Conn
	raw          net.Conn
	addr         string
	used         time.Time
	sent, resent uint64
}

// unusedLimit is how long a connection to a node that is no longer probed is kept.
const unusedLimit = 5 * time.Minute

// refusalLimit is how long a node is not probed again whose version does not serve these probes. The
// node logs each refusal, and may have been upgraded afterwards.
const refusalLimit = 5 * time.Minute

var errProbesRefused = errors.New("the node's version does not serve these probes")

// probe implements network.Options.Probe.
func (p *probePaths) probe(ctx context.Context, peer network.Peer, budget int) (network.Sample, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeUnused()
	if _, refused := p.refused[peer.ID]; refused {
		return network.Sample{}, errProbesRefused
	}
	c, err := p.connect(ctx, peer)
	if isProtocolRefused(err) {
		p.refused[peer.ID] = time.Now()
	}
	if err != nil {
		return network.Sample{}, err
	}
	sample, err := network.Measure(ctx, c, budget)
	if err != nil {
		p.drop(peer.ID)
		return sample, err
	}
	sample.Sent, sample.Resent = c.packets()
	c.used = time.Now()
	return sample, nil
}

func (p *probePaths) connect(ctx context.Context, peer network.Peer) (*probeConn, error) {
	if c := p.conns[peer.ID]; c != nil {
		if c.addr == peer.Addr {
			return c, nil
		}
		p.drop(peer.ID)
	}
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", peer.Addr)
	if err != nil {
		return nil, err
	}
	if err := authority.CloseOnRevoke(p.identity, peer.Fingerprint, raw); err != nil {
		_ = raw.Close()
		return nil, err
	}
	conn := tls.Client(raw, p.identity.ClientTLS(peer.ID, peer.Fingerprint, network.Protocol))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	c := &probeConn{Conn: conn, raw: raw, addr: peer.Addr, used: time.Now()}
	p.conns[peer.ID] = c
	return c, nil
}

// isProtocolRefused reports whether a peer's TLS does not know the application protocol. The alert has
// no type that other packages can name.
func isProtocolRefused(err error) bool {
	remote, ok := errors.AsType[*net.OpError](err)
	return ok && remote.Op == "remote error" && strings.Contains(remote.Err.Error(), "no application protocol")
}

func (p *probePaths) drop(id outboard.NodeID) {
	_ = p.conns[id].raw.Close()
	delete(p.conns, id)
}

func (p *probePaths) closeUnused() {
	for id, c := range p.conns {
		if time.Since(c.used) > unusedLimit {
			p.drop(id)
		}
	}
	maps.DeleteFunc(p.refused, func(_ outboard.NodeID, since time.Time) bool { return time.Since(since) > refusalLimit })
}

// packets returns how many packets were sent and retransmitted since the last call, according to
// the kernel.
func (c *probeConn) packets() (sent, resent uint64) {
	tcp, ok := c.raw.(*net.TCPConn)
	if !ok {
		return 0, 0
	}
	conn, err := tcp.SyscallConn()
	if err != nil {
		return 0, 0
	}
	var info *unix.TCPInfo
	if controlErr := conn.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); controlErr != nil || err != nil {
		return 0, 0
	}
	sent, resent = uint64(info.Segs_out)-c.sent, uint64(info.Total_retrans)-c.resent
	c.sent, c.resent = uint64(info.Segs_out), uint64(info.Total_retrans)
	return sent, resent
}

// serveProbes serves the probes of another node.
func (s *peerServer) serveProbes(ctx context.Context, nc net.Conn, slot *peerSlot) error {
	conn := tls.Server(nc, s.identity.ServerTLS(network.Protocol))
	limit, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err := conn.HandshakeContext(limit); err != nil {
		return outboard.Errorf(outboard.Denied, "probe", "%w", err)
	}
	peer, err := s.identity.PeerOf(conn.ConnectionState())
	if err != nil {
		return err
	}
	if peer.Session {
		return outboard.Errorf(outboard.Denied, "probe", "a session of node %s is no node", peer.Node)
	}
	if err := slot.authenticated(peer.Node); err != nil {
		return err
	}
	return network.Serve(ctx, conn)
}

// networkAPI is the part of the local API about the network between nodes.
type networkAPI struct {
	self   outboard.NodeID
	pool   *pool.Pool
	prober *network.Prober
}

func (a *networkAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/network", api.Answer(a.getNetwork))
	mux.HandleFunc("GET /v1/network/nearest", api.Answer(a.getNearest))
}

// getNetwork returns the links of all nodes; this node's own are the latest.
func (a *networkAPI) getNetwork(*http.Request) ([]client.Link, error) {
	links := slices.DeleteFunc(a.pool.Links(), func(l client.Link) bool { return l.From == a.self })
	links = append(links, a.prober.Links()...)
	network.Sort(links)
	return notNil(links), nil
}

func (a *networkAPI) getNearest(r *http.Request) ([]client.Link, error) {
	wanted := r.URL.Query()["node"]
	links := slices.DeleteFunc(a.prober.Links(), func(l client.Link) bool {
		return len(wanted) > 0 && !slices.Contains(wanted, string(l.To))
	})
	slices.SortStableFunc(links, func(a, b client.Link) int { return int(a.RTT - b.RTT) })
	return notNil(links), nil
}
