package node

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"
	"time"
)

// A client that begins with HTTP/2 is told to use HTTP/1.1 where requests are forwarded, too.
func TestForwarderRefusesHTTP2(t *testing.T) {
	front := httptest.NewServer(&forwarder{log: slog.New(slog.DiscardHandler)})
	t.Cleanup(front.Close)
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	frames := make([]byte, 26)
	if _, err := io.ReadFull(conn, frames); err != nil || frames[3] != 4 || frames[12] != 7 || frames[25] != 0xd {
		t.Errorf("got %q, %v, want SETTINGS and GOAWAY", frames, err)
	}
}

// A response by which a tenant's process refuses a body is forwarded before the body has come.
func TestResponseBeforeTheBody(t *testing.T) {
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}))
	t.Cleanup(process.Close)
	f := &forwarder{log: slog.New(slog.DiscardHandler), server: &http.Server{}, tenantRequests: 1}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, process.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	f.proxies = map[string]*httputil.ReverseProxy{"tea": f.newProxy("tea", transport)}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.forwardTo("tea", w, r) }))
	t.Cleanup(front.Close)
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute)) // without a response
	if _, err := io.WriteString(conn, "PUT /a/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Errorf("got %s, close %v", resp.Status, resp.Close)
	}
}
