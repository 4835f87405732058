package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/health"
	"github.com/outboard-run/outboard/internal/netconn"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/network"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/train/job"
)

// maxPeers bounds the connections of other nodes and of sessions.
const maxPeers = 4096

// peerServer serves the port for other nodes: nodes that join, connections to the pool's state,
// forwarded calls, and sessions of the nodes' programs.
type peerServer struct {
	listener net.Listener
	identity *authority.Identity
	pool     *pool.Pool
	calls    *calls.Host
	sessions *sessionServer
	jobs     *jobsPointer
	framed   framed.Options
	unknown  acceptor.Unauthenticated
	known    *acceptor.Slots // of the connections whose peers have authenticated, by their nodes
	refused  *prometheus.CounterVec
	health   *health.Board
	log      *slog.Logger
}

// run serves until ctx ends.
func (s *peerServer) run(ctx context.Context, ready func()) error {
	ready()
	acceptor.Serve(ctx, s.listener, s.listener.Accept, acceptor.Options{
		Name: "fabric", Log: s.log, MaxConns: maxPeers, Degraded: s.health.Reporter("fabric"),
	}, s.serve)
	return nil
}

// serve serves one connection, and logs the reason if the peer was refused.
func (s *peerServer) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	unknown, err := s.unknown.Add(conn.RemoteAddr())
	if err == nil {
		slot := &peerSlot{of: s.known, unknown: unknown}
		err = s.dispatch(ctx, conn, slot)
		slot.release()
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, state.ErrElsewhere):
		// The member connects to the next node now: this is no refusal.
		s.log.Debug("peer redirected", "peer", conn.RemoteAddr().String())
	case errors.Is(err, errOtherProbes):
		s.log.Debug("probe refused", "peer", conn.RemoteAddr().String(), "error", err)
	default:
		s.refused.WithLabelValues(outboard.KindOf(err).String()).Inc()
		s.log.Warn("peer refused", "peer", conn.RemoteAddr().String(), "error", err)
	}
}

// A peerSlot counts a connection: for its address until its peer has authenticated, and then for its
// node.
type peerSlot struct {
	of             *acceptor.Slots
	unknown, known func() // known is nil until the peer has authenticated
}

// authenticated counts the connection for its node from now on. An error says that the node has too
// many.
func (p *peerSlot) authenticated(node outboard.NodeID) (err error) {
	if p.known, err = p.of.AcquireFor(node); err == nil {
		p.unknown()
	}
	return err
}

func (p *peerSlot) release() {
	p.unknown()
	if p.known != nil {
		p.known()
	}
}

// dispatch serves a connection by the TLS application protocol that the peer offers, and tells slot
// when the peer has authenticated. An error is the reason that the peer was refused.
func (s *peerServer) dispatch(ctx context.Context, raw net.Conn, slot *peerSlot) error {
	protocols, read, err := peek(ctx, raw)
	if err != nil {
		return outboard.Errorf(outboard.Protocol, "handshake", "%w", err)
	}
	nc := netconn.Prefix(raw, read)
	switch {
	case slices.Contains(protocols, borrow.Protocol):
		return s.serveSessions(ctx, nc, slot)
	case slices.Contains(protocols, job.Protocol):
		return s.serveJobs(ctx, nc, slot)
	case slices.Contains(protocols, network.Protocol):
		return s.serveProbes(ctx, nc, slot)
	case slices.Contains(protocols, calls.Protocol):
		return s.calls.ServePeer(raw, read)
	}
	conn := tls.Server(nc, s.identity.ServerTLS(pool.Protocols()...))
	handshake, cancel := context.WithTimeout(ctx, requestLimit)
	err = conn.HandshakeContext(handshake) // ServeConn returns its error
	cancel()
	if cs := conn.ConnectionState(); err == nil && cs.NegotiatedProtocol == state.Protocol {
		if err := s.countState(cs, slot); err != nil {
			return err
		}
	}
	err = s.pool.ServeConn(ctx, conn)
	if err != nil && slices.ContainsFunc(protocols, network.IsOtherVersion) {
		return fmt.Errorf("%w: %w", errOtherProbes, err)
	}
	return err
}

// countState counts a connection to the pool's state, whose handshake is complete, for its node.
func (s *peerServer) countState(cs tls.ConnectionState, slot *peerSlot) error {
	peer, err := s.identity.PeerOf(cs)
	if err != nil {
		return err
	}
	return slot.authenticated(peer.Node)
}

// errOtherProbes refuses the probes of a node of another version. The node repeats them every few
// seconds, for as long as the pool has both versions.
var errOtherProbes = errors.New("this version does not serve these probes")

// serveSessions serves the sessions of one program on this node's devices.
func (s *peerServer) serveSessions(ctx context.Context, nc net.Conn, slot *peerSlot) error {
	conn := framed.Server(nc, s.framedOptions(s.identity.ServerTLS(borrow.Protocol)))
	defer conn.Close()
	peer, err := s.authenticate(ctx, conn)
	if err != nil {
		return err
	}
	if err := slot.authenticated(peer.Node); err != nil {
		return err
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		stream, err := conn.Accept(ctx)
		if err != nil {
			// The program ended, or died, or this node is stopping.
			return nil
		}
		serving.Go(func() { s.sessions.serveStream(ctx, stream, peer) })
	}
}

func (s *peerServer) framedOptions(config *tls.Config) framed.Options {
	o := s.framed
	o.TLS = config
	return o
}

// authenticate waits for a peer's handshake and returns its identity.
func (s *peerServer) authenticate(ctx context.Context, conn *framed.Conn) (authority.Peer, error) {
	limit, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err := conn.Handshake(limit); err != nil {
		return authority.Peer{}, err
	}
	return s.identity.Verify(conn.Peer())
}
