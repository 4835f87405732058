package pool

import (
	"context"
	"crypto/x509"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// TicketCount is how many tickets the view knows.
func (p *Pool) TicketCount() int {
	p.view.mu.Lock()
	defer p.view.mu.Unlock()
	return len(p.view.queue)
}

// Authority returns the pool's authority, as a node that keeps a copy of the state can read it.
func (p *Pool) Authority(ctx context.Context) (*authority.Authority, error) {
	return readAuthority(ctx, p.state)
}

// Admission admits nodes by the pool's tokens.
func (p *Pool) Admission() authority.Admission { return admission{p} }

// OtherKeepers returns the names of the other nodes that keep a copy of the state.
func (p *Pool) OtherKeepers() []string { return p.otherKeepers() }

// Expire shows this node's view that the record of a node has expired.
func (p *Pool) Expire(id outboard.NodeID) {
	p.view.apply(state.Change{Entries: []state.Entry{{Key: nodePrefix + string(id), Deleted: true, Expired: true}}})
}

// SpendToken spends a token for a node. It calls between after it has found the token.
func (p *Pool) SpendToken(ctx context.Context, hash string, name outboard.NodeID, csr *x509.CertificateRequest, between func()) error {
	a := admission{p}
	token, stored, err := a.findToken(ctx, hash, name, csr)
	if err != nil {
		return err
	}
	between()
	return a.spendToken(ctx, token, stored, name, csr)
}
