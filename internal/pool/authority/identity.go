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
	"time"

	"github.com/outboard-run/outboard"
)

const (
	keyFile  = "node.key"
	certFile = "node.crt"
	rootFile = "pool.crt"
)

// Identity is a node's key and certificate, with the pool's authority.
type Identity struct {
	Cert *x509.Certificate
	// Root is the certificate of the pool's authority.
	Root *x509.Certificate
	key  *ecdsa.PrivateKey

	revocations revocations
}

// NewIdentity makes a node's identity, signed by the authority.
func (a *Authority) NewIdentity(name outboard.NodeID, now time.Time) (*Identity, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert, err := a.SignNode(name, key.Public(), now)
	if err != nil {
		return nil, err
	}
	return &Identity{Cert: cert, Root: a.Cert, key: key}, nil
}

// Name is the node's name.
func (id *Identity) Name() outboard.NodeID {
	name, _ := nameIn(id.Cert, nodeHost)
	return outboard.NodeID(name)
}

// PoolID names the pool.
func (id *Identity) PoolID() string { return poolID(id.Root) }

// Fingerprint is the fingerprint in the node's record.
func (id *Identity) Fingerprint() string { return Fingerprint(id.Cert) }

// Key signs as the node.
func (id *Identity) Key() crypto.Signer { return id.key }

// TLSCertificate is the identity for TLS.
func (id *Identity) TLSCertificate() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{id.Cert.Raw}, PrivateKey: id.key, Leaf: id.Cert}
}

// SessionCertificate makes a client-only certificate, with a key of its own, for
// a program's session that the node starts. It is good for SessionLife.
func (id *Identity) SessionCertificate(now time.Time) (tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := template(now, SessionLife, sessionHost, string(id.Name()))
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	cert, err := sign(tmpl, id.Cert, key.Public(), id.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw, id.Cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

// Save writes the identity into dir, readable by its owner only.
func (id *Identity) Save(dir string) error {
	key, err := x509.MarshalPKCS8PrivateKey(id.key)
	if err != nil {
		return fmt.Errorf("save the node's identity: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("save the node's identity: %w", err)
	}
	// The certificate comes last: Load asks for it first.
	for _, f := range []struct {
		name, kind string
		der        []byte
	}{
		{keyFile, "PRIVATE KEY", key}, {rootFile, "CERTIFICATE", id.Root.Raw}, {certFile, "CERTIFICATE", id.Cert.Raw},
	} {
		if err := writeFile(filepath.Join(dir, f.name), pemEncode(f.kind, f.der)); err != nil {
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
	if _, err := nodeOf(root, []*x509.Certificate{cert}, time.Now()); err != nil {
		return nil, broken(dir, err)
	}
	return &Identity{Cert: cert, Root: root, key: key}, nil
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
