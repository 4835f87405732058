package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

const (
	keyFile  = "node.key"
	certFile = "node.crt"
	rootFile = "pool.crt"
	// trustFile holds the earlier authorities and the recorded keys of the pool's nodes.
	trustFile = "trust.json"
)

// Identity is a node's key and certificate, with the pool's authority.
//
// All methods may be called by several goroutines: the certificate and the authorities change
// when the pool's authority is renewed, the key does not.
type Identity struct {
	key *ecdsa.PrivateKey

	mu    sync.RWMutex
	trust credentials

	revocations revocations
	membership  membership
}

// credentials are the parts of an identity that a renewal of the authority changes.
type credentials struct {
	cert  *x509.Certificate // the node's
	roots Roots
	known map[outboard.NodeID]string // the fingerprints of the keys that the pool has recorded
	dir   string                     // where changes are saved, "" before Save and Load
	// shared says that another process saves the changes.
	shared bool
}

func newIdentity(cert, root *x509.Certificate, key *ecdsa.PrivateKey) *Identity {
	return &Identity{key: key, trust: credentials{cert: cert, roots: Roots{Current: root}, known: make(map[outboard.NodeID]string)}}
}

// NewIdentity creates a node's identity, signed by the authority.
func (a *Authority) NewIdentity(name outboard.NodeID, now time.Time) (*Identity, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert, err := a.SignNode(name, key.Public(), now)
	if err != nil {
		return nil, err
	}
	id := newIdentity(cert, a.Cert, key)
	id.trust.roots = a.Roots()
	return id, nil
}

// Name returns the node's name.
func (id *Identity) Name() outboard.NodeID {
	name, _ := nameIn(id.Cert(), nodeHost)
	return outboard.NodeID(name)
}

// PoolID returns the id of the pool.
func (id *Identity) PoolID() string { return poolID(id.Root()) }

// Cert returns the node's certificate.
func (id *Identity) Cert() *x509.Certificate {
	id.mu.RLock()
	defer id.mu.RUnlock()
	return id.trust.cert
}

// Root returns the certificate of the authority in force.
func (id *Identity) Root() *x509.Certificate { return id.Roots().Current }

// Roots returns the authorities that the node trusts.
func (id *Identity) Roots() Roots {
	id.mu.RLock()
	defer id.mu.RUnlock()
	return id.trust.roots
}

// Fingerprint returns the fingerprint of the node's key, as in the node's record.
func (id *Identity) Fingerprint() string { return Fingerprint(id.Cert()) }

// Key returns the node's private key, for signing.
func (id *Identity) Key() crypto.Signer { return id.key }

// TLSCertificate returns the identity as a certificate for TLS.
func (id *Identity) TLSCertificate() tls.Certificate {
	id.mu.RLock()
	defer id.mu.RUnlock()
	return tls.Certificate{Certificate: id.trust.chain(), PrivateKey: id.key, Leaf: id.trust.cert}
}

// chain returns the node's certificate and the bridges that lead to its authority.
func (c *credentials) chain() [][]byte {
	chain := [][]byte{c.cert.Raw}
	for _, b := range c.roots.Bridges {
		if time.Now().Before(b.NotAfter) {
			chain = append(chain, b.Raw)
		}
	}
	return chain
}

// SessionCertificate creates a client-only certificate, with a key of its own, for a program's
// session that the node starts. It is valid for SessionLife.
func (id *Identity) SessionCertificate(now time.Time) (tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := template(now, SessionLife, sessionHost, string(id.Name()))
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	own := id.TLSCertificate()
	cert, err := sign(tmpl, own.Leaf, key.Public(), id.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: append([][]byte{cert.Raw}, own.Certificate...), PrivateKey: key, Leaf: cert}, nil
}

// Save writes the identity into dir, readable by its owner only. Later changes are saved there as
// well.
func (id *Identity) Save(dir string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.trust.dir = dir
	return id.save()
}

// save writes the identity into its folder. The mutex is held.
func (id *Identity) save() error {
	key, err := x509.MarshalPKCS8PrivateKey(id.key)
	if err != nil {
		return fmt.Errorf("save the node's identity: %w", err)
	}
	if err := os.MkdirAll(id.trust.dir, 0o700); err != nil {
		return fmt.Errorf("save the node's identity: %w", err)
	}
	if err := id.trust.save(); err != nil {
		return err
	}
	// The certificate is written last, since Load reads it first. The authorities are written
	// before it, so that a crash in between leaves a certificate of an earlier authority, which is
	// trusted.
	for _, f := range []struct {
		name string
		text []byte
	}{
		{keyFile, pemEncode("PRIVATE KEY", key)},
		{rootFile, pemEncode("CERTIFICATE", id.trust.roots.Current.Raw)},
		{certFile, pemEncode("CERTIFICATE", id.trust.cert.Raw)},
	} {
		if err := writeFile(filepath.Join(id.trust.dir, f.name), f.text); err != nil {
			return fmt.Errorf("save the node's identity: %w", err)
		}
	}
	return nil
}

// Load reads the identity from dir. The error is fs.ErrNotExist when there is none.
func Load(dir string) (*Identity, error) {
	cert, err := loadCert(filepath.Join(dir, certFile))
	if err != nil {
		return nil, fmt.Errorf("load the node's identity: %w", err)
	}
	root, err := loadCert(filepath.Join(dir, rootFile))
	if err != nil {
		return nil, broken(dir, err)
	}
	der, err := loadPEM(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, broken(dir, err)
	}
	key, err := parseKey(der)
	if err != nil {
		return nil, broken(dir, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, broken(dir, errors.New("the key is not the certificate's"))
	}
	id := newIdentity(cert, root, key)
	if err := id.trust.load(dir); err != nil {
		return nil, broken(dir, err)
	}
	if err := id.trust.check(time.Now()); err != nil {
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
			return nil, outOfTime(dir, invalid.Cert)
		}
		return nil, broken(dir, err)
	}
	id.trust.dir = dir
	return id, nil
}

// outOfTime returns the error for a certificate that is not valid now. Its folder is not damaged.
func outOfTime(dir string, cert *x509.Certificate) error {
	const op = "load the node's identity"
	now := time.Now()
	if now.Before(cert.NotBefore) {
		return outboard.Errorf(outboard.Invalid, op, "the clock of this machine says %s, and the node's certificate is valid from %s on: set the clock",
			now.UTC().Format(time.DateTime), cert.NotBefore.UTC().Format(time.DateTime))
	}
	return outboard.Errorf(outboard.Invalid, op, "the node's certificate was valid until %s, and the clock of this machine says %s: set the clock, or, if it is right, empty %s and join the pool again",
		cert.NotAfter.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime), dir)
}

func broken(dir string, err error) error {
	return outboard.Errorf(outboard.Invalid, "load the node's identity",
		"%s is damaged (%v): restore it, or empty it and join the pool again", dir, err)
}

func loadCert(path string) (*x509.Certificate, error) {
	der, err := loadPEM(path)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func loadPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM", path)
	}
	return block.Bytes, nil
}

// writeFile replaces a file so that a crash leaves the old or the new one.
// os.CreateTemp makes it readable by its owner only.
func writeFile(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	return err
}

// Exists reports whether dir holds an identity.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, certFile))
	return !errors.Is(err, fs.ErrNotExist)
}
