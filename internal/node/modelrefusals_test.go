package node

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
)

// A request that the keys do not admit is answered before its body comes, in each interface.
func TestKeysRefuseBeforeTheBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = gateway.BoundBody(w, r, time.Minute)
		refuseModel(w, r, outboard.Errorf(outboard.Busy, "", "the API key site may make 1 request a minute"))
	}))
	t.Cleanup(server.Close)
	for path, want := range map[string]int{
		"/v1/chat/completions": http.StatusTooManyRequests, "/v2/models/m/infer": http.StatusTooManyRequests, "/api/chat": http.StatusServiceUnavailable,
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _ = answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}
