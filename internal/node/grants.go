package node

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// grants describes leases to the programs that use them.
type grants struct {
	self     outboard.NodeID
	pool     *pool.Pool
	identity *authority.Identity
}

// describe returns the data with which a program uses a lease.
func (g *grants) describe(l outboard.Lease) (client.Granted, error) {
	granted := client.Granted{Lease: l}
	for _, d := range g.pool.Devices() {
		if d.ID == l.Device {
			granted.About = d.Device
		}
	}
	claim, err := g.pool.Claim(l)
	if err != nil {
		return granted, err
	}
	granted.Claim = claim
	if granted.About.Node == g.self {
		return granted, nil
	}
	owner, ok := g.pool.Node(granted.About.Node)
	if !ok {
		return granted, outboard.Errorf(outboard.Unreachable, "lease of "+string(l.Device), "the device's node left the pool")
	}
	granted.Addr, granted.Fingerprint = owner.Addr, owner.Fingerprint
	return granted, nil
}

// credentials returns new credentials with which a program reaches other nodes.
func (g *grants) credentials(now time.Time) (*client.Credentials, error) {
	cert, err := g.identity.SessionCertificate(now)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return nil, err
	}
	c := &client.Credentials{Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})}
	for _, root := range g.identity.Roots().Trusted(now) {
		c.Authority = append(c.Authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	for _, der := range cert.Certificate {
		c.Certificate = append(c.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return c, nil
}
