// Package authority provides the identities of a pool: its certificate authority, the certificates
// of nodes, the certificates that a node signs for its sessions, the tokens that admit a new node,
// and the claims by which the holder of a lease proves its right.
//
// The chain is short: the authority signs nodes; a node signs sessions of its own,
// which may only be clients. Names are URIs: outboard://pool/ID,
// outboard://node/NAME, outboard://session/NODE. The place of a certificate in the
// chain decides what it is valid for, never its name alone: a node's certificate is signed
// by the authority itself.
//
// The package does no I/O but for identities on disk and the joining exchange on a
// connection that it is given.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/lazyregexp"
)

const (
	uriScheme   = "outboard"
	poolHost    = "pool"
	nodeHost    = "node"
	sessionHost = "session"

	authorityLife = 20 * 365 * 24 * time.Hour
	nodeLife      = 5 * 365 * 24 * time.Hour
	// renewBefore is how long before its end a node's certificate is renewed: a machine may be switched
	// off for months.
	renewBefore = 365 * 24 * time.Hour
	// SessionLife is the validity of a session's certificate.
	SessionLife = time.Hour
	// clockSkew is how far clocks of machines may differ.
	clockSkew = 5 * time.Minute
)

var nodeName = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName returns nil for a valid node name.
func CheckName(name outboard.NodeID) error {
	if nodeName.MatchString(string(name)) {
		return nil
	}
	return outboard.Errorf(outboard.Invalid, "node name",
		"%q: want 1 to 63 lower-case letters, digits and '-', such as harbour-2", string(name))
}

// Authority is a pool's certificate authority, with its key.
type Authority struct {
	Cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	roots Roots // The zero value: Cert alone.
}

// Found creates the authority of a new pool, with a random id.
func Found(now time.Time) (*Authority, error) {
	return newAuthority(authorityTemplate(now, authorityLife, rand.Text()))
}

// newAuthority creates an authority with a new key.
func newAuthority(tmpl *x509.Certificate) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert, err := sign(tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: cert, key: key}, nil
}

func authorityTemplate(now time.Time, life time.Duration, pool string) *x509.Certificate {
	tmpl := template(now, life, poolHost, pool)
	tmpl.IsCA = true
	tmpl.KeyUsage = x509.KeyUsageCertSign
	tmpl.MaxPathLen = 1
	return tmpl
}

// PoolID returns the id of the pool.
func (a *Authority) PoolID() string { return poolID(a.Cert) }

func poolID(cert *x509.Certificate) string {
	id, _ := nameIn(cert, poolHost)
	return id
}

// SignNode signs a node's certificate for a public key. It is valid since the pool was founded: a
// certificate that was signed while the clock was ahead is valid once the clock is set.
func (a *Authority) SignNode(name outboard.NodeID, public any, now time.Time) (*x509.Certificate, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if now.Add(nodeLife).Before(a.Cert.NotBefore) { // it would never be valid
		return nil, outboard.Errorf(outboard.Invalid, "sign a certificate for node "+string(name),
			"the clock says %s, and the pool was founded later: set the clock of this machine", now.UTC().Format(time.RFC3339))
	}
	tmpl := template(now, nodeLife, nodeHost, string(name))
	tmpl.NotBefore = a.earliest(tmpl)
	tmpl.IsCA = true
	tmpl.MaxPathLenZero = true
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	return sign(tmpl, a.Cert, public, a.key)
}

// earliest returns the time from which a certificate is valid that the authority signs.
func (a *Authority) earliest(tmpl *x509.Certificate) time.Time {
	if a.Cert.NotBefore.Before(tmpl.NotBefore) {
		return a.Cert.NotBefore
	}
	return tmpl.NotBefore
}

// storedAuthority is the authority in the pool's state.
type storedAuthority struct {
	Cert []byte `json:"cert"` // DER
	Key  []byte `json:"key"`  // PKCS #8
	// Roots is nil for the first authority of a pool.
	Roots *Roots `json:"roots,omitempty"`
}

// Marshal returns the authority, its key included, for the pool's state.
func (a *Authority) Marshal() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("write the pool's authority: %w", err)
	}
	stored := storedAuthority{Cert: a.Cert.Raw, Key: key}
	if a.roots.Current != nil {
		stored.Roots = &a.roots
	}
	return json.Marshal(stored)
}

// ParseAuthority parses the result of Marshal.
func ParseAuthority(text []byte) (*Authority, error) {
	var stored storedAuthority
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, fmt.Errorf("read the pool's authority: %w", err)
	}
	cert, err := x509.ParseCertificate(stored.Cert)
	if err != nil {
		return nil, fmt.Errorf("read the pool's authority: %w", err)
	}
	key, err := parseKey(stored.Key)
	if err != nil {
		return nil, fmt.Errorf("read the pool's authority: %w", err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) || !cert.IsCA {
		return nil, outboard.Errorf(outboard.Invalid, "read the pool's authority", "the key is not the certificate's")
	}
	a := &Authority{Cert: cert, key: key}
	if stored.Roots != nil {
		a.roots = *stored.Roots
	}
	return a, nil
}

// Fingerprint returns the SHA-256 of a certificate's public key, in hex.
func Fingerprint(cert *x509.Certificate) string { return FingerprintOf(cert.RawSubjectPublicKeyInfo) }

// FingerprintOf returns the SHA-256 of a public key in PKIX form, in hex.
func FingerprintOf(publicKey []byte) string {
	sum := sha256.Sum256(publicKey)
	return hex.EncodeToString(sum[:])
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func parseKey(der []byte) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, fmt.Errorf("the key is a %T, want ECDSA on P-256", key)
	}
	return ec, nil
}

func template(now time.Time, life time.Duration, host, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          new(big.Int).SetBytes([]byte(rand.Text())[:16]),
		Subject:               pkix.Name{Organization: []string{"Outboard"}, CommonName: host + " " + name},
		URIs:                  []*url.URL{{Scheme: uriScheme, Host: host, Path: "/" + name}},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(life),
		BasicConstraintsValid: true,
	}
}

func sign(tmpl, parent *x509.Certificate, public, key any) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %s: %w", tmpl.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

// nameIn returns the name that a certificate has under a URI host, if its only
// URI is of that kind.
func nameIn(cert *x509.Certificate, host string) (string, bool) {
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != uriScheme || cert.URIs[0].Host != host {
		return "", false
	}
	path := cert.URIs[0].Path
	if len(path) < 2 || path[0] != '/' {
		return "", false
	}
	return path[1:], true
}

func pemEncode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
