package pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// maxTokenTTL bounds how long a token may be valid.
const maxTokenTTL = 30 * 24 * time.Hour

// ServeConn serves a connection whose application protocol is one of Protocols,
// and closes it. Its TLS must be that of Identity.ServerTLS.
func (p *Pool) ServeConn(ctx context.Context, conn *tls.Conn) error {
	defer conn.Close()
	handshake, cancel := context.WithTimeout(ctx, authority.JoinTimeout)
	defer cancel()
	if err := conn.HandshakeContext(handshake); err != nil {
		return &outboard.Error{Op: "serve " + conn.RemoteAddr().String(), Kind: outboard.Denied, Err: err}
	}
	switch protocol := conn.ConnectionState().NegotiatedProtocol; protocol {
	case authority.JoinProtocol:
		name, err := authority.ServeJoin(ctx, conn, admission{p})
		if err != nil {
			return fmt.Errorf("admit node %q from %s: %w", name, conn.RemoteAddr(), err)
		}
		p.log.Info("node admitted", "joined", name, "from", conn.RemoteAddr().String())
		return nil
	case state.Protocol:
		peer, err := p.id.PeerOf(conn.ConnectionState())
		if err == nil && peer.Session {
			err = outboard.Errorf(outboard.Denied, "serve the pool's state", "a session of node %s is no node", peer.Node)
		}
		if err != nil {
			return err
		}
		if err = p.state.ServeConn(ctx, conn, peer.Node); errors.Is(err, state.ErrElsewhere) {
			// While a pool grows, all nodes ask each other several times a second.
			p.log.Debug("a node asked here for the pool's state", "peer", peer.Node, "error", err)
			return nil
		}
		return err
	default:
		return outboard.Errorf(outboard.Protocol, "serve "+conn.RemoteAddr().String(), "the pool does not speak %q", protocol)
	}
}

// storedToken is the value stored under a token's hash.
type storedToken struct {
	By      outboard.NodeID `json:"by"`
	Expires time.Time       `json:"expires"` // zero if the token is spent
	SpentBy string          `json:"spent_by,omitempty"`
}

// NewToken creates a token that admits one node until ttl has passed. On an external NATS cluster,
// whose credentials admit a node, it returns an error of the kind Conflict.
func (p *Pool) NewToken(ctx context.Context, ttl time.Duration) (string, error) {
	if p.state.Role() == "external" {
		return "", outboard.Errorf(outboard.Conflict, "make a token",
			"this pool is on a NATS cluster, whose credentials admit a node: run `outboard up` with the same --nats and --creds on the other machine")
	}
	if !p.signs() {
		a, err := p.requestStateNode(ctx, keeperRequest{TokenTTL: ttl})
		return a.Token, err
	}
	return admission{p}.makeToken(ctx, p.view.self, ttl)
}

// signs reports whether this node can read the authority's key.
func (p *Pool) signs() bool { return p.state.KeepsCopy() || p.state.Role() == "external" }

// admission admits nodes by the pool's tokens.
type admission struct{ p *Pool }

// Admit implements authority.Admission. A node that cannot read the authority's key forwards
// the request to one that can.
func (a admission) Admit(ctx context.Context, name outboard.NodeID, tokenHash string, csr *x509.CertificateRequest) (*x509.Certificate, []string, error) {
	if a.p.signs() {
		return a.admit(ctx, a.p.view.self, name, tokenHash, csr)
	}
	answer, err := a.p.requestStateNode(ctx, keeperRequest{Admit: &admitRequest{Name: name, TokenHash: tokenHash, CSR: csr.Raw}})
	if err != nil {
		return nil, nil, err
	}
	cert, err := parseCert(answer.Cert)
	return cert, answer.Peers, err
}

// admit admits a node whose token was presented at another one, or at this one.
func (a admission) admit(ctx context.Context, at, name outboard.NodeID, tokenHash string, csr *x509.CertificateRequest) (*x509.Certificate, []string, error) {
	if err := authority.CheckName(name); err != nil {
		return nil, nil, err
	}
	// The token is checked first: the names of the pool's nodes are not for strangers.
	token, stored, err := a.findToken(ctx, tokenHash, name, csr)
	if err != nil {
		return nil, nil, err
	}
	if _, alive := a.p.view.node(name); alive {
		return nil, nil, outboard.Errorf(outboard.Conflict, "admit a node",
			"the pool has a node %q already: choose another --name, or stop that node first", name)
	}
	ca, err := a.authority(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := a.spendToken(ctx, token, stored, name, csr); err != nil {
		return nil, nil, err
	}
	if err := a.recordAdmission(ctx, name, stored.By, at); err != nil {
		return nil, nil, err
	}
	cert, err := ca.SignNode(name, csr.PublicKey, time.Now())
	if err != nil {
		return nil, nil, err
	}
	return cert, a.p.state.Peers(), a.recordIdentity(ctx, name, authority.Fingerprint(cert))
}

func badToken() error {
	return outboard.Errorf(outboard.Denied, "admit a node",
		"the token is wrong, was used, or has expired: make a new one with `outboard token` on a node of the pool")
}

// findToken returns a token that has neither expired nor been spent by another request.
func (a admission) findToken(ctx context.Context, hash string, name outboard.NodeID, csr *x509.CertificateRequest) (entry state.Entry, stored storedToken, err error) {
	entry, err = a.p.state.GetLatest(ctx, tokenPrefix+hash)
	if errors.Is(err, state.ErrNotFound) {
		return entry, stored, badToken()
	}
	if err != nil {
		return entry, stored, err
	}
	if err := json.Unmarshal(entry.Value, &stored); err != nil {
		return entry, stored, badToken()
	}
	if stored.SpentBy != spender(name, csr) && (stored.SpentBy != "" || time.Now().After(stored.Expires)) {
		return entry, stored, badToken()
	}
	return entry, stored, nil
}

// spender identifies the requests of a node that joins: its name, and the key that it has made.
func spender(name outboard.NodeID, csr *x509.CertificateRequest) string {
	return string(name) + " " + authority.FingerprintOf(csr.RawSubjectPublicKeyInfo)
}

// spendToken marks a token as spent. Of several nodes that present the token, one succeeds. A node
// that forwards a request repeats it when the answer is late: the mark tells the repeated request,
// which succeeds, from those of other nodes.
func (a admission) spendToken(ctx context.Context, token state.Entry, stored storedToken, name outboard.NodeID, csr *x509.CertificateRequest) error {
	for stored.SpentBy == "" { // else it was spent by an earlier attempt of this request
		text, err := json.Marshal(storedToken{By: stored.By, SpentBy: spender(name, csr)})
		if err != nil {
			return err
		}
		_, err = a.p.state.Update(ctx, token.Key, text, token.Revision, authority.JoinTimeout)
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
		// A request has spent the token, or the table has moved to three copies, where the entries
		// have other revisions.
		token, stored, err = a.findToken(ctx, strings.TrimPrefix(token.Key, tokenPrefix), name, csr)
		if err != nil {
			return err
		}
	}
	return nil
}

// makeToken creates a token for a node of the pool.
func (a admission) makeToken(ctx context.Context, by outboard.NodeID, ttl time.Duration) (string, error) {
	if ttl < time.Second || ttl > maxTokenTTL {
		return "", outboard.Errorf(outboard.Invalid, "make a token", "a life of %v: want 1s to %v", ttl, maxTokenTTL)
	}
	ca, err := a.authority(ctx)
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	text, err := json.Marshal(storedToken{By: by, Expires: time.Now().Add(ttl).UTC()})
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	token := ca.NewToken()
	if _, err := a.p.state.Create(ctx, tokenPrefix+token.Hash(), text, ttl); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return token.String(), nil
}
