package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"github.com/google/go-cmp/cmp"
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
