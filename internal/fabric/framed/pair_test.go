package framed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"
)

// certificates makes an authority and the configurations of two nodes that trust
// it, each with a certificate.
func certificates(t testing.TB) (client, server *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pool"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	node := func(name string, serial int64) *tls.Config {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"node"},
			NotBefore: root.NotBefore, NotAfter: root.NotAfter,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		}
		raw, err := x509.CreateCertificate(rand.Reader, leaf, authority, own.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: own}},
			RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "node",
			MinVersion: tls.VersionTLS13,
		}
	}
	return node("dinghy", 2), node("harbour", 3)
}

// tcp gives both ends of a loopback connection.
func tcp(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// transports are the ways to connect two ends in the tests.
var transports = map[string]func(t testing.TB, o Options) (client, server *Conn){
	"memory": func(t testing.TB, o Options) (*Conn, *Conn) {
		a, b := net.Pipe()
		return closeAtEnd(t, Client(a, o), Server(b, o))
	},
	"tcp": func(t testing.TB, o Options) (*Conn, *Conn) {
		a, b := tcp(t)
		return closeAtEnd(t, Client(a, o), Server(b, o))
	},
	"tls": tlsPair,
}

func tlsPair(t testing.TB, o Options) (*Conn, *Conn) {
	a, b := tcp(t)
	oc, os := o, o
	oc.TLS, os.TLS = certificates(t)
	return closeAtEnd(t, Client(a, oc), Server(b, os))
}

func closeAtEnd(t testing.TB, client, server *Conn) (*Conn, *Conn) {
	t.Cleanup(func() {
		go client.Close()
		server.Close()
		client.Close()
	})
	return client, server
}
