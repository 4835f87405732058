package pool_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// A node that forwards the request of a node that joins repeats it when the answer is late. The
// repeated request succeeds as the first one, and no other request with the token does.
func TestRepeatedAdmission(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a := newTestNode(t, "a", 0)
	a.up(ctx, nil)
	token, err := authority.ParseToken(a.token(ctx))
	if err != nil {
		t.Fatal(err)
	}
	csr, other := newRequest(t), newRequest(t)
	results := make(chan error, 3)
	for range cap(results) {
		go func() {
			cert, _, err := a.Admission().Admit(ctx, "b", token.Hash(), csr)
			if err == nil && authority.Fingerprint(cert) != authority.FingerprintOf(csr.RawSubjectPublicKeyInfo) {
				t.Error("the certificate has another key")
			}
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if _, _, err := a.Admission().Admit(ctx, "b", token.Hash(), other); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("another key: %v, want Denied", err)
	}
	if _, _, err := a.Admission().Admit(ctx, "c", token.Hash(), csr); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("another name: %v, want Denied", err)
	}
}

func newRequest(t *testing.T) *x509.CertificateRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := authority.ParseRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

// The table moves to three copies while a node joins: the node's token, which the request has found
// already, has another revision afterwards.
func TestTokenOfAMovedTableIsSpent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a := newTestNode(t, "a", 0)
	a.up(ctx, nil)
	token, err := authority.ParseToken(a.token(ctx))
	if err != nil {
		t.Fatal(err)
	}
	csr := newRequest(t)
	err = a.SpendToken(ctx, token.Hash(), "b", csr, func() {
		e, err := a.state.Get(ctx, "tokens/"+token.Hash())
		if err == nil {
			_, err = a.state.Put(ctx, e.Key, e.Value, time.Minute)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Admission().Admit(ctx, "b", token.Hash(), newRequest(t)); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("another request with the spent token: %v, want Denied", err)
	}
}
