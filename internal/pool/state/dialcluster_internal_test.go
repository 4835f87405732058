package state

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http/httptest"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A lent connection is encrypted, and the server verified, as the client's own: by the name by which the
// client knows it.
func TestDialClusterOverTLS(t *testing.T) {
	t.Parallel()
	site := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1 and example.com
	defer site.Close()
	srv, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, TLS: true, TLSTimeout: 60,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: site.TLS.Certificates},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the server does not listen")
	}
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	for name, trusted := range map[string]bool{"127.0.0.1": true, "example.com": true, "example.org": false} {
		config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: name}
		if !trusted {
			config.ServerName = "example.com"
		}
		nc, err := nats.Connect(srv.ClientURL(), nats.Secure(config))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		if !trusted {
			nc.Opts.TLSConfig.ServerName = name
		}
		conn, credentials, err := dialCluster(t.Context(), nc)
		if (err == nil) != trusted || len(credentials) != 0 {
			t.Errorf("%s: %v, and credentials %v", name, err, credentials)
		}
		if err != nil {
			continue
		}
		line := make([]byte, 5)
		if _, err := io.ReadFull(conn, line); err != nil || string(line) != "INFO " {
			t.Errorf("%s: the connection begins with %q (%v), want the server's INFO", name, line, err)
		}
		if _, err := io.WriteString(conn, "CONNECT {}\r\nPING\r\n"); err != nil {
			t.Error(err)
		}
		rest := make([]byte, 64<<10)
		if _, err := conn.Read(rest); err != nil {
			t.Errorf("%s: the server does not answer: %v", name, err)
		}
		_ = conn.Close()
	}
}
