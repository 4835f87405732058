package authority

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
)

const (
	// MaxClaim bounds a claim's size.
	MaxClaim = 16 << 10
	// ClaimLife is how long a claim may be presented after it was signed.
	ClaimLife = 2 * time.Minute

	claimContext = "outboard claim 1\x00"
)

// claim is the wire form: the signed bytes and the signer's certificate.
type claim struct {
	Body []byte `json:"body"`
	Sig  []byte `json:"sig"`
	// Cert is the holder node's certificate, DER.
	Cert []byte `json:"cert"`
}

type claimBody struct {
	Pool  string         `json:"pool"`
	Lease outboard.Lease `json:"lease"`
	// Signed is the time of the signature by the holder's clock.
	Signed time.Time `json:"signed"`
}

// SignClaim signs the proof that this node holds a lease.
func (id *Identity) SignClaim(lease outboard.Lease, now time.Time) ([]byte, error) {
	body, err := json.Marshal(claimBody{Pool: id.PoolID(), Lease: lease, Signed: now.UTC()})
	if err != nil {
		return nil, fmt.Errorf("sign a claim: %w", err)
	}
	sum := claimSum(body)
	sig, err := ecdsa.SignASN1(rand.Reader, id.key, sum[:])
	if err != nil {
		return nil, fmt.Errorf("sign a claim: %w", err)
	}
	return json.Marshal(claim{Body: body, Sig: sig, Cert: id.Cert().Raw})
}

func claimSum(body []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte(claimContext), body...))
}

// VerifyClaim checks a claim's signature, its pool and its age, and returns its lease and the node
// that holds the lease. Only the pool's state tells whether the lease is still valid.
func (id *Identity) VerifyClaim(text []byte, now time.Time) (outboard.Lease, Peer, error) {
	lease, peer, err := verifyClaim(id, text, now)
	if err != nil {
		return outboard.Lease{}, Peer{}, &outboard.Error{Op: "claim", Kind: outboard.Denied, Err: err}
	}
	return lease, peer, nil
}

func verifyClaim(id *Identity, text []byte, now time.Time) (outboard.Lease, Peer, error) {
	var none outboard.Lease
	if len(text) > MaxClaim {
		return none, Peer{}, fmt.Errorf("%d bytes are too many", len(text))
	}
	var c claim
	if err := json.Unmarshal(text, &c); err != nil {
		return none, Peer{}, errors.New("it is malformed")
	}
	cert, err := x509.ParseCertificate(c.Cert)
	if err != nil {
		return none, Peer{}, errors.New("its certificate is malformed")
	}
	peer, err := id.verifyBy(func(root *x509.Certificate) (Peer, error) { return nodeOf(root, []*x509.Certificate{cert}, now) })
	if err != nil {
		return none, Peer{}, err
	}
	key, ok := cert.PublicKey.(*ecdsa.PublicKey)
	sum := claimSum(c.Body)
	if !ok || !ecdsa.VerifyASN1(key, sum[:], c.Sig) {
		return none, Peer{}, fmt.Errorf("the signature is not node %s's", peer.Node)
	}
	var body claimBody
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return none, Peer{}, errors.New("it is malformed")
	}
	return body.Lease, peer, body.check(id.PoolID(), peer, now)
}

func (b claimBody) check(pool string, signer Peer, now time.Time) error {
	switch {
	case b.Pool != pool:
		return errors.New("it is of another pool")
	case b.Lease.Holder != signer.Node:
		return fmt.Errorf("node %s claims a lease of node %s", signer.Node, b.Lease.Holder)
	case now.Sub(b.Signed) > ClaimLife+clockSkew:
		return fmt.Errorf("it was signed at %s and has expired: sign it again, or compare the machines' clocks", b.Signed.Format(time.RFC3339))
	case b.Signed.Sub(now) > clockSkew:
		return fmt.Errorf("it was signed in the future, at %s: compare the machines' clocks", b.Signed.Format(time.RFC3339))
	}
	return nil
}
