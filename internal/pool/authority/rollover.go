package authority

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard"
)

// trusted is the content of trustFile.
type trusted struct {
	Roots Roots                      `json:"roots"`
	Known map[outboard.NodeID]string `json:"known,omitempty"`
}

// load reads trustFile. An identity of an earlier version has no such file.
func (c *credentials) load(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, trustFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var t trusted
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", trustFile, err)
	}
	if t.Roots.Current == nil || poolID(t.Roots.Current) != poolID(c.roots.Current) {
		return errors.New("its files are of different pools")
	}
	c.roots = t.Roots
	maps.Copy(c.known, t.Known)
	return nil
}

// check checks that an authority that the node trusts signed the node's own certificate. An
// authority whose time has passed counts as well: the refusal by other nodes tells the user what to
// do.
func (c *credentials) check(now time.Time) error {
	_, err := nodeOf(c.roots.Current, []*x509.Certificate{c.cert}, now)
	for _, p := range c.roots.Previous {
		if err != nil {
			_, err = nodeOf(p.Cert, []*x509.Certificate{c.cert}, now)
		}
	}
	return err
}

// Trust makes the node trust roots from now on, and saves them in the node's folder if it has one.
// It ignores roots that are older than the node's own.
func (id *Identity) Trust(roots Roots) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case poolID(roots.Current) != poolID(id.trust.roots.Current):
		return outboard.Errorf(outboard.Denied, "trust an authority", "it is of another pool")
	case roots.Serial <= id.trust.roots.Serial:
		return nil
	}
	id.trust.roots = roots
	return id.trust.save()
}

// Record records the fingerprints of the keys with which nodes of the pool were admitted. An empty
// fingerprint deletes the node's record.
func (id *Identity) Record(keys map[outboard.NodeID]string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	changed := false
	for name, fingerprint := range keys {
		if id.trust.known[name] == fingerprint {
			continue
		}
		changed = true
		if id.trust.known[name] = fingerprint; fingerprint == "" {
			delete(id.trust.known, name)
		}
	}
	if !changed {
		return nil
	}
	return id.trust.save()
}

// save writes trustFile if the identity has a folder and this process saves its changes.
func (c *credentials) save() error {
	if c.dir == "" || c.shared {
		return nil
	}
	text, err := json.Marshal(trusted{Roots: c.roots, Known: c.known})
	if err == nil {
		err = writeFile(filepath.Join(c.dir, trustFile), text)
	}
	if err != nil {
		return fmt.Errorf("save the authorities that the node trusts: %w", err)
	}
	return nil
}

// IsCurrent reports whether the authority in force signed the node's certificate, and the certificate
// is valid and need not be renewed yet.
func (id *Identity) IsCurrent() bool {
	id.mu.RLock()
	defer id.mu.RUnlock()
	return time.Until(id.trust.cert.NotAfter) > renewBefore && time.Until(id.trust.cert.NotBefore) <= 0 && id.trust.cert.CheckSignatureFrom(id.trust.roots.Current) == nil
}

// RenewalRequest returns a request for a new certificate for the node's key, in DER.
func (id *Identity) RenewalRequest() ([]byte, error) {
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, id.key)
	if err != nil {
		return nil, fmt.Errorf("ask for a certificate: %w", err)
	}
	return csr, nil
}

// Replace replaces the node's certificate by a new one of the authority in force, also on disk.
// Open connections keep the earlier certificate.
func (id *Identity) Replace(cert *x509.Certificate) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	peer, err := nodeOf(id.trust.roots.Current, []*x509.Certificate{cert}, time.Now())
	if err != nil {
		return err
	}
	if name, _ := nameIn(id.trust.cert, nodeHost); string(peer.Node) != name || !id.key.PublicKey.Equal(cert.PublicKey) {
		return outboard.Errorf(outboard.Protocol, "replace the node's certificate", "it is not the one that was asked for")
	}
	id.trust.cert = cert
	if id.trust.dir == "" || id.trust.shared {
		return nil
	}
	return id.save()
}

// LoadShared is Load for another process of the node, which reads the changes that the node saves,
// and saves none.
func LoadShared(dir string) (*Identity, error) {
	id, err := Load(dir)
	if err == nil {
		id.trust.shared = true
	}
	return id, err
}

// Reload reads again the certificate and the authorities, which another process of the node has
// saved.
func (id *Identity) Reload() error {
	id.mu.RLock()
	dir := id.trust.dir
	id.mu.RUnlock()
	saved, err := Load(dir)
	if err != nil {
		return err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if saved.key.Equal(id.key) && saved.trust.roots.Serial >= id.trust.roots.Serial {
		saved.trust.shared = id.trust.shared
		id.trust = saved.trust
	}
	return nil
}
