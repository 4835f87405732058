package remote

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// echo serves unary and streaming calls by the method's name.
type echo struct {
	began, ended chan string // of calls that wait; nil: nobody asks
}

func (e *echo) Serve(s call.ServerStream) error {
	h := s.Head()
	switch h.Name() {
	case "Fail":
		return failure()
	case "Wait":
		return e.wait(s)
	case "Count": // says how many bytes came
		return count(s)
	case "Give": // one large message
		m, err := s.Recv()
		if err != nil {
			return err
		}
		n := len(m.Data) << 20
		m.Free()
		return s.Send(&call.Message{Data: make([]byte, n)})
	}
	if err := s.SendHeader(metadata.MD{"seen": h.Metadata["asked"]}); err != nil {
		return err
	}
	s.SetTrailer(metadata.MD{"trail-bin": {"\x00\xff"}})
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

func (e *echo) wait(s call.ServerStream) error {
	if e.began != nil {
		e.began <- s.Head().Name()
	}
	<-s.Context().Done()
	if e.ended != nil {
		e.ended <- s.Head().Name()
	}
	return s.Context().Err()
}

func count(s call.ServerStream) error {
	total := 0
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.Send(&call.Message{Data: big.NewInt(int64(total)).Append(nil, 10)})
		}
		if err != nil {
			return err
		}
		total += len(m.Data)
		m.Free()
	}
}

// unaryEcho has the short way too.
type unaryEcho struct{ echo }

func (e *unaryEcho) ServeUnary(_ context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
	if h.Name() == "Fail" {
		m.Free()
		return nil, call.End{Trailer: metadata.MD{"why": {"asked"}}}, failure()
	}
	var end call.End
	if asked := h.Metadata["asked"]; asked != nil {
		end.Header = metadata.MD{"seen": asked}
		end.Trailer = metadata.MD{"trail-bin": {"\x00\xff"}}
	}
	return m, end, nil
}

func failure() error { return status.Error(codes.FailedPrecondition, "asked to fail") }

// pair connects two ends; each serves with h.
func pair(t testing.TB, secure bool, client, server Options) (*Conn, *Conn) {
	t.Helper()
	a, b := tcp(t)
	if secure {
		client.Framed.TLS, server.Framed.TLS = certificates(t)
	}
	return ends(t, a, b, client, server)
}

func ends(t testing.TB, a, b net.Conn, client, server Options) (*Conn, *Conn) {
	ca, cb := New(framed.Client(a, client.Framed), client), New(framed.Server(b, server.Framed), server)
	t.Cleanup(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			ca.Close()
		}()
		cb.Close()
		<-done
	})
	return ca, cb
}

// tcp gives both ends of a loopback connection.
func tcp(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// certificates makes an authority and the configurations of two nodes that trust it.
func certificates(t testing.TB) (client, server *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, DNSNames: []string{"node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	config := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "node",
		MinVersion: tls.VersionTLS13,
	}
	server = config.Clone()
	return config, server
}
