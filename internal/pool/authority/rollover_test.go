package authority_test

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// renewed makes nodes trust an authority and gives them certificates of it.
func renewed(t *testing.T, ca *authority.Authority, nodes ...*authority.Identity) {
	t.Helper()
	for _, id := range nodes {
		if err := id.Trust(ca.Roots()); err != nil {
			t.Fatal(err)
		}
		request, err := id.RenewalRequest()
		if err != nil {
			t.Fatal(err)
		}
		csr, err := authority.ParseRequest(request)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := ca.SignNode(id.Name(), csr.PublicKey, now)
		if err != nil {
			t.Fatal(err)
		}
		before := id.Fingerprint()
		if err := id.Replace(cert); err != nil || !id.IsCurrent() || id.Fingerprint() != before {
			t.Fatalf("replace the certificate: %v, current %t", err, id.IsCurrent())
		}
	}
}

// A node whose clock is years ahead renews its certificate, and may renew the authority's key. Both
// have to be valid once the clock is set: the node could not come back otherwise.
func TestCertificatesOfAWrongClock(t *testing.T) {
	ca, nodes := testPool(t, "a", "b")
	ahead := now.AddDate(4, 6, 0)
	next := renew(t, ca, ahead, time.Hour)
	for _, signer := range []*authority.Authority{ca, next} {
		id, err := signer.NewIdentity("a", ahead)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := id.Save(dir); err != nil {
			t.Fatal(err)
		}
		if loaded, err := authority.Load(dir); err != nil || !loaded.IsCurrent() {
			t.Errorf("the certificate of a wrong clock: %v", err)
		}
	}
	record(t, nodes...)
	renewed(t, next, nodes[0])
	if err := nodes[1].Trust(next.Roots()); err != nil {
		t.Fatal(err)
	}
	if err := connects(t, nodes[0], nodes[1]); err != nil {
		t.Errorf("a node with a new certificate and one with an earlier one: %v", err)
	}
	if _, err := ca.SignNode("a", nodes[0].Cert().PublicKey, now.AddDate(-20, 0, 0)); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("a certificate that has expired already: %v", err)
	}
}

// A certificate that is not valid at the time of a wrong clock is no damage: its folder must not be
// emptied.
func TestLoadOutOfTime(t *testing.T) {
	for name, at := range map[string]time.Time{"valid from": now.AddDate(10, 0, 0), "was valid until": now.AddDate(-10, 0, 0)} {
		ca, err := authority.Found(at)
		if err != nil {
			t.Fatal(err)
		}
		id, err := ca.NewIdentity("a", at)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := id.Save(dir); err != nil {
			t.Fatal(err)
		}
		_, err = authority.Load(dir)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "set the clock") || strings.Contains(err.Error(), "damaged") {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

// record makes each node know the keys of all.
func record(t *testing.T, nodes ...*authority.Identity) {
	t.Helper()
	keys := make(map[outboard.NodeID]string)
	for _, id := range nodes {
		keys[id.Name()] = id.Fingerprint()
	}
	for _, id := range nodes {
		if err := id.Record(keys); err != nil {
			t.Fatal(err)
		}
	}
}

func renew(t *testing.T, ca *authority.Authority, at time.Time, away time.Duration) *authority.Authority {
	t.Helper()
	next, err := ca.Renew(at, away)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// connects reports the error of connections both ways between two nodes.
func connects(t *testing.T, x, y *authority.Identity) error {
	t.Helper()
	var errs []error
	for _, pair := range [][2]*authority.Identity{{x, y}, {y, x}} {
		client, server := handshake(t, pair[0].ClientTLS(pair[1].Name(), ""), pair[1].ServerTLS())
		errs = append(errs, client, server)
	}
	return errors.Join(errs...)
}

// TestRenewal renews the authority while node b is away: b and the others accept each other
// until the time is over, and what the holder of the earlier key signs counts for nothing.
func TestRenewal(t *testing.T) {
	ca, nodes := testPool(t, "a", "b", "c")
	a, b, c := nodes[0], nodes[1], nodes[2]
	record(t, nodes...)
	next := renew(t, ca, now, time.Hour)
	if next.PoolID() != ca.PoolID() {
		t.Errorf("the pool was %s and is %s", ca.PoolID(), next.PoolID())
	}
	renewed(t, next, a, c)
	for what, pair := range map[string][2]*authority.Identity{"both renewed": {a, c}, "one away": {a, b}} {
		if err := connects(t, pair[0], pair[1]); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	joined, err := next.NewIdentity("d", now)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*authority.Identity{a, b} {
		if err := connects(t, joined, other); err != nil && other == a {
			t.Errorf("a node that joined later: %v", err)
		}
	}
	thief, err := ca.NewIdentity("b", now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Verify([]*x509.Certificate{thief.Cert()}); err == nil || !strings.Contains(err.Error(), "has not recorded") {
		t.Errorf("a node that the earlier key signed: %v", err)
	}
	session, err := b.SessionCertificate(now)
	if err != nil {
		t.Fatal(err)
	}
	if peer, err := a.Verify(parsed(t, session)); err != nil || peer.Node != "b" || !peer.Session {
		t.Errorf("a session of the node that is away: %v, %v", peer, err)
	}
	if session, err = a.SessionCertificate(now); err != nil {
		t.Fatal(err)
	}
	if peer, err := b.Verify(parsed(t, session)); err != nil || peer.Node != "a" {
		t.Errorf("a session, at the node that is away: %v, %v", peer, err)
	}
	claim, err := b.SignClaim(outboard.Lease{Grant: outboard.Grant{Holder: "b"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.VerifyClaim(claim, now); err != nil {
		t.Errorf("a claim of the node that is away: %v", err)
	}
	stolen, err := thief.SignClaim(outboard.Lease{Grant: outboard.Grant{Holder: "b"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.VerifyClaim(stolen, now); err == nil {
		t.Error("a claim that the thief signed counts")
	}
}

// TestRenewalEnds renews with a time that is over: a node that was away is refused, and refuses.
func TestRenewalEnds(t *testing.T) {
	ca, nodes := testPool(t, "a", "b")
	a, b := nodes[0], nodes[1]
	record(t, nodes...)
	renewed(t, renew(t, ca, now.Add(-2*time.Hour), time.Hour), a)
	if _, err := a.Verify([]*x509.Certificate{b.Cert()}); err == nil {
		t.Error("the node that was away for too long is accepted")
	}
	if _, err := b.Verify(parsed(t, a.TLSCertificate())); err == nil {
		t.Error("the node that was away for too long accepts")
	}
}

// TestRenewals renews twice: a node that knows the first authority verifies those of the third.
func TestRenewals(t *testing.T) {
	ca, nodes := testPool(t, "a", "b")
	a, b := nodes[0], nodes[1]
	record(t, nodes...)
	second := renew(t, ca, now, time.Hour)
	renewed(t, second, a)
	third := renew(t, second, now, time.Hour)
	renewed(t, third, a)
	if err := connects(t, a, b); err != nil {
		t.Error(err)
	}
	if err := a.Trust(second.Roots()); err != nil || a.Roots().Serial != 2 {
		t.Errorf("after older roots: %v, serial %d, want 2", err, a.Roots().Serial)
	}
	other, _ := testPool(t)
	if err := a.Trust(renew(t, renew(t, renew(t, other, now, 0), now, 0), now, 0).Roots()); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("roots of another pool: %v, want Denied", err)
	}
}

// TestRenewalOnDisk loads an identity between the renewal of the authority and that of its
// certificate, and after it, also in another process of the node.
func TestRenewalOnDisk(t *testing.T) {
	ca, nodes := testPool(t, "a", "b")
	a, b := nodes[0], nodes[1]
	dir := t.TempDir()
	if err := a.Save(dir); err != nil {
		t.Fatal(err)
	}
	shared, err := authority.LoadShared(dir)
	if err != nil {
		t.Fatal(err)
	}
	record(t, a, b)
	text, err := renew(t, ca, now, time.Hour).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	next, err := authority.ParseAuthority(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Trust(next.Roots()); err != nil {
		t.Fatal(err)
	}
	again, err := authority.Load(dir)
	if err != nil || again.IsCurrent() || again.Roots().Serial != 1 {
		t.Fatalf("after the authority's renewal: %v", err)
	}
	if _, err := again.Verify([]*x509.Certificate{b.Cert()}); err != nil {
		t.Errorf("a node whose key was recorded before the restart: %v", err)
	}
	renewed(t, next, a)
	if again, err = authority.Load(dir); err != nil || !again.IsCurrent() {
		t.Fatalf("after the certificate's renewal: %v", err)
	}
	if err := shared.Reload(); err != nil || !shared.IsCurrent() {
		t.Errorf("in another process: %v, current %t", err, shared.IsCurrent())
	}
}

// FuzzRoots parses the authorities that a table names: what is parsed is of one pool, and
// bounded.
func FuzzRoots(f *testing.F) {
	ca, _ := testPool(f)
	next, err := ca.Renew(now, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range []authority.Roots{ca.Roots(), next.Roots()} {
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r authority.Roots
		if json.Unmarshal(text, &r) == nil && (r.Current == nil || len(r.Trusted(now)) > 9 || len(r.Bridges) > 8) {
			t.Errorf("accepted %q", text)
		}
	})
}
