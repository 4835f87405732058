package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"
)

// The stacks that carry calls.
const (
	stackFabric   = "fabric"
	stackBorrowed = "fabric, borrowed" // handlers and callers read large fields in shared memory
	stackGRPC     = "grpc"
	stackRaw      = "raw"
)

// The roles of processes.
const (
	roleClient  = "client"
	roleServer  = "server"
	roleProxy   = "proxy"   // grpc-go's layer-7 proxy
	roleEnvoy   = "envoy"   // Envoy as the proxy
	roleManaged = "managed" // the fabric's process between the applications
	roleChain   = "chain"
	roleNode    = "node" // carries a node's calls
)

// A spec describes a process: its role and its configuration.
type spec struct {
	Role, Name, Stack string
	// App is the application that a server serves.
	App string
	// Listen and the targets are "unix:PATH" or "tcp:HOST:PORT".
	Listen string
	// Targets are the addresses of each service; "" is for all other services.
	Targets map[string][]string
	// Others are the addresses where programs connect to the other nodes of a pool.
	Others []string
	// Envoy is the path of the program for that role.
	Envoy string
	// Policies is the policy file of the managed process, or of the node.
	Policies string
	Speed    float64 // the speed of a back end
	Identity *identity
	Profile  string // the file of the profile
}

func (s *spec) target(service string) string {
	for _, name := range []string{service, ""} {
		if t := s.Targets[name]; len(t) > 0 {
			return t[0]
		}
	}
	return ""
}

// An identity is a certificate, with its key, that its holder serves with and trusts.
type identity struct{ Certificate, Key []byte }

func newIdentity() (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &identity{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
	}, nil
}

// tls returns a configuration for TLS 1.3 on both sides, or nil for no identity.
func (i *identity) tls() (*tls.Config, error) {
	if i == nil {
		return nil, nil //nolint:nilnil // no identity, no TLS
	}
	cert, err := tls.X509KeyPair(i.Certificate, i.Key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(i.Certificate) {
		return nil, errors.New("no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS13}, nil
}
