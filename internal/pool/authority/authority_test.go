package authority_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

var now = time.Now()

func testPool(t testing.TB, names ...outboard.NodeID) (*authority.Authority, []*authority.Identity) {
	t.Helper()
	ca, err := authority.Found(now)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*authority.Identity
	for _, name := range names {
		id, err := ca.NewIdentity(name, now)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, id)
	}
	return ca, nodes
}

func parsed(t testing.TB, cert tls.Certificate) []*x509.Certificate {
	t.Helper()
	var chain []*x509.Certificate
	for _, der := range cert.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, c)
	}
	return chain
}

// forge makes a certificate of any name, signed by a node.
func forge(t testing.TB, by *authority.Identity, uri string) *x509.Certificate {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "forged"}, URIs: []*url.URL{u},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, by.Cert(), key.Public(), by.Key())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestVerifyPeer(t *testing.T) {
	ca, nodes := testPool(t, "a", "b")
	_, foreign := testPool(t, "a")
	a, b := nodes[0], nodes[1]
	session, err := a.SessionCertificate(now)
	if err != nil {
		t.Fatal(err)
	}
	chain := parsed(t, session)
	for name, tt := range map[string]struct {
		chain []*x509.Certificate
		at    time.Time
		want  authority.Peer
		err   string
	}{
		"node":               {chain: []*x509.Certificate{a.Cert()}, want: authority.Peer{Node: "a", Fingerprint: a.Fingerprint()}},
		"session":            {chain: chain, want: authority.Peer{Node: "a", Fingerprint: a.Fingerprint(), Session: true}},
		"none":               {err: "the peer has none"},
		"foreign":            {chain: []*x509.Certificate{foreign[0].Cert()}, err: "not of this pool"},
		"foreign session":    {chain: []*x509.Certificate{chain[0], foreign[0].Cert()}, err: "not of this pool"},
		"without its node":   {chain: chain[:1], err: "without its node's"},
		"of another node":    {chain: []*x509.Certificate{chain[0], b.Cert()}, err: "vouched for by node b"},
		"the authority":      {chain: []*x509.Certificate{ca.Cert}, err: "is no node"},
		"node by a node":     {chain: []*x509.Certificate{forge(t, a, "outboard://node/b"), a.Cert()}, err: "not of this pool"},
		"session by another": {chain: []*x509.Certificate{forge(t, b, "outboard://session/a"), a.Cert()}, err: "session of node a"},
		"old session":        {chain: chain, at: now.Add(2 * authority.SessionLife), err: "expired"},
		"old node":           {chain: []*x509.Certificate{a.Cert()}, at: now.AddDate(6, 0, 0), err: "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.at.IsZero() {
				tt.at = now
			}
			got, err := authority.VerifyPeer(ca.Cert, tt.chain, tt.at)
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
			if tt.err != "" && (outboard.KindOf(err) != outboard.Denied || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want Denied with %q", err, tt.err)
			}
		})
	}
}

// handshake connects a client and a server, and returns what each says.
func handshake(t *testing.T, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	ours, theirs := tcpPair(t)
	return handshakeOver(t, ours, theirs, client, server)
}

func handshakeOver(t *testing.T, ours, theirs net.Conn, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	defer ours.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		c := tls.Server(theirs, server)
		err := c.HandshakeContext(ctx)
		if err == nil {
			_, err = c.Write([]byte{1})
		}
		done <- errors.Join(err, theirs.Close())
	}()
	c := tls.Client(ours, client)
	err := c.HandshakeContext(ctx)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	ours.Close()
	return err, <-done
}

func TestTLS(t *testing.T) {
	ca, nodes := testPool(t, "a", "b", "c")
	_, foreign := testPool(t, "a")
	a, b, c := nodes[0], nodes[1], nodes[2]
	session, err := c.SessionCertificate(now)
	if err != nil {
		t.Fatal(err)
	}
	joining := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{authority.JoinProtocol}}
	stranger := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"other"}}
	open := a.ServerTLS(authority.JoinProtocol, "other")
	for name, tt := range map[string]struct {
		client, server *tls.Config
		err            string
	}{
		"node to node":             {b.ClientTLS("a", a.Fingerprint()), a.ServerTLS(), ""},
		"session to node":          {authority.SessionClientTLS([]*x509.Certificate{ca.Cert}, session, "a", a.Fingerprint()), a.ServerTLS(), ""},
		"route":                    {b.RouteTLS(nil), a.RouteTLS(nil), ""},
		"another name":             {b.ClientTLS("c", ""), a.ServerTLS(), "node a answers in place of node c"},
		"another key":              {b.ClientTLS("a", b.Fingerprint()), a.ServerTLS(), "another key"},
		"foreign client":           {foreign[0].ClientTLS("a", ""), a.ServerTLS(), "not of this pool"},
		"foreign server":           {b.ClientTLS("a", ""), foreign[0].ServerTLS(), "not of this pool"},
		"session on a route":       {authority.SessionClientTLS([]*x509.Certificate{ca.Cert}, session, "a", ""), a.RouteTLS(nil), "is no node"},
		"no certificate":           {stranger, a.ServerTLS("other"), "didn't provide a certificate"},
		"joining":                  {joining, open, ""},
		"joining where one can't":  {joining, a.ServerTLS("other"), "no application protocol"},
		"stranger where one joins": {stranger, open, "the peer has none"},
	} {
		t.Run(name, func(t *testing.T) {
			clientErr, serverErr := handshake(t, tt.client, tt.server)
			err := errors.Join(clientErr, serverErr)
			if tt.err == "" && err != nil {
				t.Error(err)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

func TestIdentityOnDisk(t *testing.T) {
	_, nodes := testPool(t, "a")
	_, foreign := testPool(t, "a")
	dir := t.TempDir()
	if _, err := authority.Load(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory: %v, want ErrNotExist", err)
	}
	if err := nodes[0].Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := authority.Load(dir)
	if err != nil || got.Name() != "a" || got.PoolID() != nodes[0].PoolID() || got.Fingerprint() != nodes[0].Fingerprint() {
		t.Errorf("got %v, %v", got, err)
	}
	other := t.TempDir()
	if err := foreign[0].Save(other); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node.key", "pool.crt"} {
		text, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := authority.Load(dir); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%s of another node: %v, want that it is damaged", name, err)
		}
		if err := nodes[0].Save(dir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAuthorityInState(t *testing.T) {
	ca, _ := testPool(t)
	text, err := ca.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := authority.ParseAuthority(text)
	if err != nil || again.PoolID() != ca.PoolID() {
		t.Fatalf("got %v, %v", again, err)
	}
	id, err := again.NewIdentity("b", now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.VerifyPeer(ca.Cert, []*x509.Certificate{id.Cert()}, now); err != nil {
		t.Error(err)
	}
}

// An address at which another protocol than TLS answers is named as such.
func TestJoinWithoutTLS(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, _, err := authority.Join(t.Context(), server.Listener.Addr().String(), authority.Token{}, "dinghy")
	if outboard.KindOf(err) != outboard.Protocol || !strings.Contains(err.Error(), "--listen") {
		t.Error(err)
	}
}
