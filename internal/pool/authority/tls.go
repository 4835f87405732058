package authority

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// A Peer is the authenticated identity on the other side of a connection.
type Peer struct {
	// Node is the peer itself, or the node that signed the session's certificate.
	Node outboard.NodeID
	// Fingerprint is the fingerprint of Node's key.
	Fingerprint string
	// Session says that the peer is a session of Node.
	Session bool
}

// denied returns the error that refuses a certificate, with the reason.
func denied(format string, args ...any) error {
	return outboard.Errorf(outboard.Denied, "certificate", format, args...)
}

// VerifyPeer authenticates a chain of certificates, leaf first. A session's certificate is followed
// by the certificate of its node. The other certificates may lead from root to a later authority.
func VerifyPeer(root *x509.Certificate, chain []*x509.Certificate, now time.Time) (Peer, error) {
	if len(chain) == 0 {
		return Peer{}, denied("the peer has none: it must belong to the pool, see `outboard token`")
	}
	if _, ok := nameIn(chain[0], sessionHost); !ok {
		return nodeOf(root, chain, now)
	}
	if len(chain) < 2 {
		return Peer{}, denied("the session's comes without its node's")
	}
	node, err := nodeOf(root, chain[1:], now)
	if err != nil {
		return Peer{}, err
	}
	if err := checkSession(issuerOf(root, chain[1], chain[2:], now), chain[0], chain[1], now); err != nil {
		return Peer{}, err
	}
	node.Session = true
	return node, nil
}

// nodeOf checks that chain begins with a node's certificate, signed by the
// authority itself.
func nodeOf(root *x509.Certificate, chain []*x509.Certificate, now time.Time) (Peer, error) {
	cert := chain[0]
	name, ok := nameIn(cert, nodeHost)
	if !ok {
		return Peer{}, denied("%q is no node of a pool", cert.Subject)
	}
	root = issuerOf(root, cert, chain[1:], now)
	if root == nil {
		return Peer{}, denied("node %s is not of this pool: join it with a token of this pool, see `outboard token`", name)
	}
	if err := verify(root, nil, cert, now, x509.ExtKeyUsageClientAuth); err != nil {
		return Peer{}, denied("node %s: %w", name, err)
	}
	return Peer{Node: outboard.NodeID(name), Fingerprint: Fingerprint(cert)}, nil
}

func checkSession(root, cert, node *x509.Certificate, now time.Time) error {
	vouched, _ := nameIn(cert, sessionHost)
	name, _ := nameIn(node, nodeHost)
	if vouched != name {
		return denied("session of node %s, vouched for by node %s", vouched, name)
	}
	if err := verify(root, node, cert, now, x509.ExtKeyUsageClientAuth); err != nil {
		return denied("session of node %s: %w", name, err)
	}
	return nil
}

func verify(root, intermediate, cert *x509.Certificate, now time.Time, usage x509.ExtKeyUsage) error {
	opts := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	}
	opts.Roots.AddCert(root)
	if intermediate != nil {
		opts.Intermediates.AddCert(intermediate)
	}
	_, err := cert.Verify(opts)
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return fmt.Errorf("%w: do the clocks of the two machines agree?", err)
	}
	return err
}

// config returns the part that all TLS configurations of the pool have in common. Its own
// verification replaces Go's: nodes have names, not host names.
func (id *Identity) config(check func(Peer) error) *tls.Config {
	// The certificate is read at each handshake, since it may be renewed while cfg is used.
	current := func() *tls.Certificate {
		cert := id.TLSCertificate()
		return &cert
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current(), nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return current(), nil },
		ClientAuth:           tls.RequireAnyClientCert,
		InsecureSkipVerify:   true, // VerifyConnection verifies the peer.
		VerifyConnection: func(cs tls.ConnectionState) error {
			peer, err := id.Verify(cs.PeerCertificates)
			if err != nil {
				return err
			}
			return check(peer)
		},
	}
}

// Verify authenticates a chain of certificates, leaf first. It refuses removed nodes.
func (id *Identity) Verify(chain []*x509.Certificate) (Peer, error) {
	peer, err := id.verifyBy(func(root *x509.Certificate) (Peer, error) { return VerifyPeer(root, chain, time.Now()) })
	if err == nil && id.IsRevoked(peer.Fingerprint) {
		err = removed(peer)
	}
	return peer, err
}

// verifyBy verifies a peer by the authority in force, or else by an earlier authority, which is
// trusted only for nodes whose keys the pool has recorded.
func (id *Identity) verifyBy(verify func(root *x509.Certificate) (Peer, error)) (Peer, error) {
	roots := id.Roots()
	peer, err := verify(roots.Current)
	if err == nil {
		return peer, nil
	}
	for _, root := range roots.Trusted(time.Now())[1:] {
		if peer, earlier := verify(root); earlier == nil {
			id.mu.RLock()
			recorded := id.trust.known[peer.Node]
			id.mu.RUnlock()
			if recorded == peer.Fingerprint {
				return peer, nil
			}
			err = denied("node %s has a certificate of an authority that was renewed, and a key that the pool has not recorded: join it anew with a token", peer.Node)
		}
	}
	return Peer{}, err
}

// ServerTLS returns a server's configuration that accepts nodes of the pool and their sessions. If
// JoinProtocol is among the protocols, a connection that negotiated it needs no certificate.
func (id *Identity) ServerTLS(protocols ...string) *tls.Config {
	cfg := id.config(func(Peer) error { return nil })
	cfg.NextProtos = protocols
	if !slices.Contains(protocols, JoinProtocol) {
		return id.recordConns(cfg)
	}
	strict := cfg.VerifyConnection
	cfg.ClientAuth = tls.RequestClientCert
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if cs.NegotiatedProtocol == JoinProtocol && len(cs.PeerCertificates) == 0 {
			return nil
		}
		return strict(cs)
	}
	// A joining node knows the authority only by the token's fingerprint, so the chain includes it.
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert := id.TLSCertificate()
		cert.Certificate = append(cert.Certificate, id.Root().Raw)
		return &cert, nil
	}
	return id.recordConns(cfg)
}

// ClientTLS returns a client's configuration for connections to one node, which must have the name
// and, unless it is "", the fingerprint of its record.
func (id *Identity) ClientTLS(name outboard.NodeID, fingerprint string, protocols ...string) *tls.Config {
	cfg := id.config(IsNode(name, fingerprint))
	cfg.NextProtos = protocols
	return cfg
}

// AnyNodeTLS returns a client's configuration that accepts any node of the pool, but no session.
func (id *Identity) AnyNodeTLS(protocols ...string) *tls.Config {
	cfg := id.RouteTLS(nil)
	cfg.NextProtos = protocols
	return cfg
}

// IsNode returns a check that a peer is the node with this name and, unless it is "", fingerprint.
func IsNode(name outboard.NodeID, fingerprint string) func(Peer) error {
	return func(p Peer) error {
		switch {
		case p.Session:
			return denied("a session of node %s answers in place of node %s", p.Node, name)
		case p.Node != name:
			return denied("node %s answers in place of node %s", p.Node, name)
		case fingerprint != "" && p.Fingerprint != fingerprint:
			return denied("node %s has another key than its record in the pool", name)
		}
		return nil
	}
}

// RouteTLS returns the configuration of both ends of the connections between embedded servers. It
// accepts nodes, but neither their sessions nor nodes that fenced, if not nil, reports.
func (id *Identity) RouteTLS(fenced func(outboard.NodeID) bool) *tls.Config {
	return id.recordConns(id.config(func(p Peer) error {
		switch {
		case p.Session:
			return denied("a session of node %s is no node", p.Node)
		case fenced != nil && fenced(p.Node):
			return denied("another node keeps the copy of the pool's state that node %s kept", p.Node)
		}
		return nil
	}))
}

// PeerOf returns the peer of a connection whose handshake is complete.
func (id *Identity) PeerOf(cs tls.ConnectionState) (Peer, error) {
	if !cs.HandshakeComplete {
		return Peer{}, fmt.Errorf("peer: %w", errors.New("the handshake is not done"))
	}
	return id.Verify(cs.PeerCertificates)
}

// SessionClientTLS returns the configuration by which a session connects to a node. It has the
// session's certificate and the authorities that the session's node trusts, and accepts only the
// node with this name and fingerprint.
func SessionClientTLS(roots []*x509.Certificate, cert tls.Certificate, name outboard.NodeID, fingerprint string) *tls.Config {
	check := IsNode(name, fingerprint)
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{cert},
		InsecureSkipVerify: true, // VerifyConnection verifies the peer.
		VerifyConnection: func(cs tls.ConnectionState) error {
			err := denied("the session knows no authority")
			for _, root := range roots {
				var peer Peer
				if peer, err = VerifyPeer(root, cs.PeerCertificates, time.Now()); err == nil {
					return check(peer)
				}
			}
			return err
		},
	}
}
