package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/gateway"
)

// TestForwardTrailers: the trailers of a request, announced or not, reach the tenant's process.
func TestForwardTrailers(t *testing.T) {
	tenant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v %v", body, err, r.Trailer)
	}))
	t.Cleanup(tenant.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, tenant.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	front := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: forward})
	t.Cleanup(front.Close)
	for name, c := range map[string]struct{ head, trailers, want string }{
		"announced":   {"Trailer: X-Sum\r\n", "X-Sum: 42\r\n", "abc <nil> map[X-Sum:[42]]"},
		"unannounced": {"", "X-Sum: 42\r\n", "abc <nil> map[X-Sum:[42]]"},
		"none":        {"", "", "abc <nil> map[]"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", front.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "POST /a/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"+c.head+"\r\n3\r\nabc\r\n0\r\n"+c.trailers+"\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(got), c.want); diff != "" {
				t.Errorf("got (-) want (+):\n%s", diff)
			}
		})
	}
}

// A tenant whose process does not answer occupies a part of the connections only.
func TestRequestsOfATenantAreBounded(t *testing.T) {
	const most = 4
	answer, arrived := make(chan struct{}), make(chan struct{}, most)
	process := func(handler http.HandlerFunc) *http.Transport {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}}
		t.Cleanup(transport.CloseIdleConnections)
		return transport
	}
	f := &forwarder{log: slog.New(slog.DiscardHandler), server: &http.Server{}, tenantRequests: most}
	f.proxies = map[string]*httputil.ReverseProxy{
		"tea":    f.newProxy("tea", process(func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-answer })),
		"coffee": f.newProxy("coffee", process(func(http.ResponseWriter, *http.Request) {})),
	}
	request := func(tenant string) int {
		w := httptest.NewRecorder()
		f.forwardTo(tenant, w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a/", http.NoBody))
		return w.Code
	}
	var waiting sync.WaitGroup
	for range most {
		waiting.Go(func() {
			if status := request("tea"); status != http.StatusOK {
				t.Errorf("an answered request has status %d", status)
			}
		})
		<-arrived
	}
	if status := request("tea"); status != http.StatusTooManyRequests {
		t.Errorf("a further request has status %d", status)
	}
	if status := request("coffee"); status != http.StatusOK {
		t.Errorf("a request of another tenant has status %d", status)
	}
	close(answer)
	waiting.Wait()
	if status := request("tea"); status != http.StatusOK {
		t.Errorf("a later request has status %d", status)
	}
}

// TestForwardBodies: a client whose body does not arrive, or not as HTTP says, is told so, and not
// that the app can't be served.
func TestForwardBodies(t *testing.T) {
	tenant := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(tenant.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, tenant.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	f := &forwarder{log: slog.New(slog.DiscardHandler), server: &http.Server{}}
	proxy := f.newProxy("default", transport)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxy.ServeHTTP(w, gateway.BoundBody(w, r, 50*time.Millisecond))
	}))
	t.Cleanup(front.Close)
	for name, c := range map[string]struct {
		rest   string // of the head, and the body
		status int
	}{
		"too slow": {"Content-Length: 1000\r\n\r\nx", http.StatusRequestTimeout},
		"no chunk": {"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzz\r\n", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", front.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "POST /a/ HTTP/1.1\r\nHost: x\r\n"+c.rest); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("got %s, want %d", resp.Status, c.status)
			}
		})
	}
}
