package authority

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"weak"

	"github.com/outboard-run/outboard/internal/netconn"
)

// revocations are the nodes that were removed from the pool, by the fingerprints of their
// keys, and the connections that were accepted from nodes and opened to them.
type revocations struct {
	mu      sync.Mutex
	revoked map[string]bool
	conns   map[string][]weak.Pointer[net.TCPConn]
	pruneAt int // number of connections
	count   int
}

// Revoke refuses a node and its sessions from now on. It closes the connections that were accepted
// from them, and those registered by CloseOnRevoke. It may be called again.
func (id *Identity) Revoke(fingerprint string) {
	r := &id.revocations
	r.mu.Lock()
	if r.revoked == nil {
		r.revoked = make(map[string]bool)
	}
	r.revoked[fingerprint] = true
	conns := r.conns[fingerprint]
	delete(r.conns, fingerprint)
	r.count -= len(conns)
	r.mu.Unlock()
	for _, p := range conns {
		if conn := p.Value(); conn != nil {
			_ = conn.Close() // An error means that it is closed already.
		}
	}
}

// IsRevoked reports whether a node was removed from the pool.
func (id *Identity) IsRevoked(fingerprint string) bool {
	r := &id.revocations
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revoked[fingerprint]
}

// accept records a peer's connection and checks the peer again, so that a concurrent revocation
// refuses or closes the connection.
func (r *revocations) accept(peer Peer, conn net.Conn) error {
	conn = netconn.Lowest(conn)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.revoked[peer.Fingerprint] {
		return removed(peer)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("a connection of type %T could not be closed if its node were removed", conn)
	}
	if r.conns == nil {
		r.conns, r.pruneAt = make(map[string][]weak.Pointer[net.TCPConn]), 64
	}
	if r.count >= r.pruneAt {
		r.prune()
	}
	r.conns[peer.Fingerprint] = append(r.conns[peer.Fingerprint], weak.Make(tcp))
	r.count++
	return nil
}

// CloseOnRevoke closes a connection that this node has opened, or is opening, to the node with a
// fingerprint as soon as the node is removed from the pool. It returns an error if the node is
// removed already.
func CloseOnRevoke(id *Identity, fingerprint string, conn net.Conn) error {
	return id.revocations.accept(Peer{Fingerprint: fingerprint}, conn)
}

// prune drops the entries of connections that were garbage-collected. The mutex is held.
func (r *revocations) prune() {
	r.count = 0
	for fingerprint, conns := range r.conns {
		var live []weak.Pointer[net.TCPConn]
		for _, p := range conns {
			if p.Value() != nil {
				live = append(live, p)
			}
		}
		if r.conns[fingerprint] = live; len(live) == 0 {
			delete(r.conns, fingerprint)
		}
		r.count += len(live)
	}
	r.pruneAt = max(64, 2*r.count)
}

func removed(peer Peer) error {
	if peer.Node == "" {
		return denied("the node was removed from the pool")
	}
	return denied("node %s was removed from the pool: join it anew with a token, see `outboard token`", peer.Node)
}

// recordConns makes the server side of cfg record the connections that it accepts.
func (id *Identity) recordConns(cfg *tls.Config) *tls.Config {
	base := cfg.Clone()
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c := base.Clone()
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			if err := base.VerifyConnection(cs); err != nil || len(cs.PeerCertificates) == 0 {
				return err
			}
			peer, err := id.Verify(cs.PeerCertificates)
			if err != nil {
				return err
			}
			return id.revocations.accept(peer, hello.Conn)
		}
		return c, nil
	}
	return cfg
}
