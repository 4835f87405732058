package authority

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
)

const (
	// maxRoots bounds the earlier authorities that a pool still trusts, and the bridges between
	// them.
	maxRoots = 8
	// MaxAway bounds how long an earlier authority is trusted.
	MaxAway = 365 * 24 * time.Hour
)

// Roots are the authorities that a node trusts: the one in force and, for a time, the earlier ones.
// The rollover is that of RFC 4210, section 4.4: the earlier authority signs the key of the later
// one ("new with old"), so that a node that was away verifies nodes that have their new
// certificates already.
type Roots struct {
	// Current is the authority in force.
	Current *x509.Certificate
	// Serial counts the renewals: of two Roots of a pool the one with the greater Serial is in
	// force.
	Serial int
	// Bridges are the keys of later authorities, each signed by its predecessor.
	Bridges []*x509.Certificate
	// Previous are the earlier authorities. Their certificates are valid until the given time, and
	// only for nodes whose keys the pool has recorded: keys that a removed node made are not
	// recorded.
	Previous []PreviousRoot
}

// A PreviousRoot is an authority that was renewed.
type PreviousRoot struct {
	Cert  *x509.Certificate
	Until time.Time
}

// Renew creates the authority that follows a, for the same pool and with a new key. Nodes that have
// certificates of a can come back with them until away, from 0 to MaxAway, has passed.
func (a *Authority) Renew(now time.Time, away time.Duration) (*Authority, error) {
	if away < 0 || away > MaxAway {
		return nil, outboard.Errorf(outboard.Invalid, "renew the pool's authority", "a time of %v: want 0 to %v", away, MaxAway)
	}
	renewed := authorityTemplate(now, authorityLife, a.PoolID())
	renewed.NotBefore = a.earliest(renewed)
	next, err := newAuthority(renewed)
	if err != nil {
		return nil, err
	}
	roots := a.Roots()
	next.roots = Roots{Current: next.Cert, Serial: roots.Serial + 1}
	tmpl := authorityTemplate(now, away, a.PoolID())
	tmpl.NotBefore = a.earliest(tmpl)
	bridge, err := sign(tmpl, a.Cert, next.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	until := now.Add(away)
	next.roots.Previous = []PreviousRoot{{Cert: a.Cert, Until: until}}
	next.roots.Bridges = []*x509.Certificate{bridge}
	for _, p := range roots.Previous {
		if now.Before(p.Until) && len(next.roots.Previous) < maxRoots {
			next.roots.Previous = append(next.roots.Previous, p)
		}
	}
	for _, b := range roots.Bridges {
		if now.Before(b.NotAfter) && len(next.roots.Bridges) < maxRoots {
			next.roots.Bridges = append(next.roots.Bridges, b)
		}
	}
	return next, nil
}

// Roots returns the authorities that nodes have to trust while a is in force.
func (a *Authority) Roots() Roots {
	if a.roots.Current == nil {
		return Roots{Current: a.Cert}
	}
	return a.roots
}

// Trusted returns the authorities that are trusted at a time, the one in force first.
func (r Roots) Trusted(now time.Time) []*x509.Certificate {
	all := []*x509.Certificate{r.Current}
	for _, p := range r.Previous {
		if now.Before(p.Until) {
			all = append(all, p.Cert)
		}
	}
	return all
}

// storedRoots is the stored form of Roots; certificates are DER.
type storedRoots struct {
	Current  []byte           `json:"current"`
	Serial   int              `json:"serial,omitempty"`
	Bridges  [][]byte         `json:"bridges,omitempty"`
	Previous []storedPrevious `json:"previous,omitempty"`
}

type storedPrevious struct {
	Cert  []byte    `json:"cert"`
	Until time.Time `json:"until"`
}

// MarshalJSON implements json.Marshaler.
func (r Roots) MarshalJSON() ([]byte, error) {
	s := storedRoots{Current: r.Current.Raw, Serial: r.Serial}
	for _, b := range r.Bridges {
		s.Bridges = append(s.Bridges, b.Raw)
	}
	for _, p := range r.Previous {
		s.Previous = append(s.Previous, storedPrevious{p.Cert.Raw, p.Until.UTC()})
	}
	return json.Marshal(s)
}

// UnmarshalJSON implements json.Unmarshaler. It refuses roots of different pools.
func (r *Roots) UnmarshalJSON(text []byte) error {
	var s storedRoots
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if len(s.Bridges) > maxRoots || len(s.Previous) > maxRoots || s.Serial < 0 {
		return fmt.Errorf("%d authorities are too many", len(s.Previous))
	}
	current, err := parseRoot(s.Current, "")
	if err != nil {
		return err
	}
	out := Roots{Current: current, Serial: s.Serial}
	for _, der := range s.Bridges {
		b, err := parseRoot(der, poolID(current))
		if err != nil {
			return err
		}
		out.Bridges = append(out.Bridges, b)
	}
	for _, p := range s.Previous {
		cert, err := parseRoot(p.Cert, poolID(current))
		if err != nil {
			return err
		}
		out.Previous = append(out.Previous, PreviousRoot{cert, p.Until})
	}
	*r = out
	return nil
}

// parseRoot parses the certificate of an authority, which must be that of pool unless pool is "".
func parseRoot(der []byte, pool string) (*x509.Certificate, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("the certificate of an authority: %w", err)
	}
	id, ok := nameIn(cert, poolHost)
	if !ok || !cert.IsCA || pool != "" && id != pool {
		return nil, fmt.Errorf("%q is no authority of the pool", cert.Subject)
	}
	return cert, nil
}

// issuerOf returns the authority that signed cert: root, or a later authority to whose key bridges
// in chain lead from root. It returns nil if there is none.
func issuerOf(root, cert *x509.Certificate, chain []*x509.Certificate, now time.Time) *x509.Certificate {
	chain = chain[:min(len(chain), 2*maxRoots)]
	issuer := root
	for range maxRoots {
		if cert.CheckSignatureFrom(issuer) == nil {
			return issuer
		}
		next := bridgeFrom(issuer, chain, now)
		if next == nil {
			return nil
		}
		issuer = next
	}
	return nil
}

// bridgeFrom returns the certificate by which an authority vouches for the key of a later one.
func bridgeFrom(issuer *x509.Certificate, chain []*x509.Certificate, now time.Time) *x509.Certificate {
	for _, b := range chain {
		id, ok := nameIn(b, poolHost)
		if !ok || id != poolID(issuer) || now.Before(b.NotBefore) || now.After(b.NotAfter) || Fingerprint(b) == Fingerprint(issuer) {
			continue
		}
		if b.CheckSignatureFrom(issuer) == nil {
			return b
		}
	}
	return nil
}
