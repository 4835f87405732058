package node

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
)

// A large file that the node refuses at once, as with a full disk, gets the reason as its response. On a
// unix socket the client would otherwise see only that the connection has ended.
func TestRefusedUploadHasItsReason(t *testing.T) {
	store, err := artifact.Open(artifact.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	(&artifactAPI{store: store}).register(mux)
	socket := filepath.Join(t.TempDir(), client.SocketName)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	defer server.Close()
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer c.CloseIdleConnections()
	const large = 8 << 20
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://node/v1/artifacts/sha256:none", bytes.NewReader(make([]byte, large)))
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 4 {
		t.Errorf("status %s", response.Status)
	}
}
