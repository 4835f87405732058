package borrow

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A session is continued over a link whose TLS handshake takes longer than an attempt to dial may.
func TestReconnectOverALongLink(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	config := server.TLS.Clone()
	config.NextProtos = []string{Protocol}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = nc.Read(make([]byte, 1)) }() // begins with the handshake
		}
	}()
	transport, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatalf("the client has a %T", server.Client().Transport)
	}
	client := transport.TLSClientConfig.Clone()
	client.NextProtos, client.ServerName = config.NextProtos, "example.com"
	r := NewRemote(RemoteOptions{
		Addr: l.Addr().String(),
		TLS:  func() (*tls.Config, error) { return client, nil },
		Dialed: func(net.Conn) error {
			<-time.After(redialLimit) // as the handshake on the link would
			return nil
		},
	})
	defer r.Close()
	if _, err := r.connect(t.Context(), redialLimit); err != nil {
		t.Error(err)
	}
}
