package pool

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// rootsKey is the key of the authorities that nodes trust: the first renewal writes it.
const rootsKey = "config/roots"

// DefaultAway is the default time within which a node that was away while the authority's key was
// renewed can come back with the certificate that it has.
const DefaultAway = 7 * 24 * time.Hour

// authority returns the authority in force, after publishing it if the renewal that created it was
// interrupted before.
func (a admission) authority(ctx context.Context) (*authority.Authority, error) {
	ca, err := readAuthority(ctx, a.p.state)
	if err != nil {
		return nil, err
	}
	return ca, a.publishRoots(ctx, ca.Roots())
}

// publishRoots makes all nodes trust the authority in force.
func (a admission) publishRoots(ctx context.Context, roots authority.Roots) error {
	if roots.Serial <= a.p.id.Roots().Serial {
		return nil
	}
	text, err := json.Marshal(roots)
	if err != nil {
		return err
	}
	for {
		entry, err := a.p.state.GetLatest(ctx, rootsKey)
		var has authority.Roots
		switch {
		case errors.Is(err, state.ErrNotFound):
		case err != nil:
			return err
		case json.Unmarshal(entry.Value, &has) == nil && has.Serial >= roots.Serial:
			return a.p.id.Trust(roots)
		}
		_, err = a.p.state.Update(ctx, rootsKey, text, entry.Revision, 0)
		if err == nil {
			return a.p.id.Trust(roots)
		}
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
}

// renewAuthority replaces the authority's key. Nodes that are up get certificates of the new
// authority by themselves; nodes that are away can do so until away has passed. Tokens become void,
// since they name the earlier authority.
func (a admission) renewAuthority(ctx context.Context, away time.Duration) error {
	log, err := openKeyring(ctx, a.p.state)
	if err != nil {
		return err
	}
	ca, seq, err := readKeyring(ctx, a.p.state)
	if err != nil {
		return err
	}
	next, err := ca.Renew(time.Now(), away)
	if err != nil {
		return err
	}
	text, err := next.Marshal()
	if err != nil {
		return err
	}
	// The log comes first: its last record is the authority in force.
	if _, err := log.Append(ctx, state.AuthorityKey, seq, text); err != nil {
		return err
	}
	if err := a.publishRoots(ctx, next.Roots()); err != nil {
		return err
	}
	a.p.log.Warn("the key of the pool's authority was renewed: tokens that are not used yet are void", "away", away)
	return a.deleteTokens(ctx)
}

// deleteTokens deletes all tokens.
func (a admission) deleteTokens(ctx context.Context) error {
	tokens, err := a.p.state.Entries(ctx, tokenPrefix)
	errs := []error{err}
	for _, e := range tokens {
		errs = append(errs, a.p.deleteKey(ctx, e.Key))
	}
	return errors.Join(errs...)
}

// followAuthority obtains a certificate of the authority in force for this node after each renewal of
// the authority, and before the certificate expires.
func (a admission) followAuthority(ctx context.Context) {
	p := a.p
	tick := time.NewTicker(p.opts.Heartbeat)
	defer tick.Stop()
	for {
		changed := p.view.changed()
		if !p.id.IsCurrent() {
			if err := a.renewCertificate(ctx); err != nil && ctx.Err() == nil {
				p.log.Warn("this node's certificate was not renewed: trying again", "error", err)
				changed = nil // Try again after a heartbeat, not at the next change.
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// renewCertificate replaces this node's certificate by one of the authority in force.
func (a admission) renewCertificate(ctx context.Context) error {
	p := a.p
	ctx, cancel := context.WithTimeout(ctx, authority.JoinTimeout)
	defer cancel()
	request, err := p.id.RenewalRequest()
	if err != nil {
		return err
	}
	var answer keeperAnswer
	if p.signs() {
		answer, err = a.answerRenew(ctx, p.view.self, request)
	} else {
		answer, err = p.requestStateNode(ctx, keeperRequest{Renew: request})
	}
	if err != nil {
		return err
	}
	cert, err := parseCert(answer.Cert)
	if err != nil {
		return err
	}
	if err := p.id.Replace(cert); err != nil {
		return err
	}
	p.log.Info("this node's certificate was renewed", "until", cert.NotAfter.Format(time.DateOnly))
	return nil
}

// answerRenew signs a new certificate for a node that has the key with which it was admitted.
func (a admission) answerRenew(ctx context.Context, node outboard.NodeID, request []byte) (keeperAnswer, error) {
	const op = "renew a certificate"
	csr, err := authority.ParseRequest(request)
	if err != nil {
		return keeperAnswer{}, err
	}
	entry, err := a.p.state.GetLatest(ctx, identityPrefix+string(node))
	if errors.Is(err, state.ErrNotFound) || err == nil && string(entry.Value) != authority.FingerprintOf(csr.RawSubjectPublicKeyInfo) {
		return keeperAnswer{}, outboard.Errorf(outboard.Denied, op, "node %s was not admitted with that key", node)
	}
	if err != nil {
		return keeperAnswer{}, fmt.Errorf("%s: %w", op, err)
	}
	ca, err := a.authority(ctx)
	if err != nil {
		return keeperAnswer{}, fmt.Errorf("%s: %w", op, err)
	}
	cert, err := ca.SignNode(node, csr.PublicKey, time.Now())
	if err != nil {
		return keeperAnswer{}, err
	}
	return keeperAnswer{Cert: cert.Raw}, nil
}

// parseCert parses a certificate that another node sent.
func parseCert(der []byte) (*x509.Certificate, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "read a certificate", "%w", err)
	}
	return cert, nil
}

// trustRoots trusts the authorities that the table names.
func trustRoots(id *authority.Identity, e state.Entry) error {
	var roots authority.Roots
	if err := json.Unmarshal(e.Value, &roots); err != nil {
		return err
	}
	return id.Trust(roots)
}

// followIdentity reloads the identity of a process that shares its node's identity, until the
// authority in force has signed its certificate.
func (m *Members) followIdentity(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		changed := m.view.changed()
		if !m.view.identity.IsCurrent() {
			if err := m.view.identity.Reload(); err != nil {
				m.view.log.Warn("the node's identity was not read again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		}
	}
}
