package gateway_test

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/gateway"
)

// A function that leaves a body unread has its whole response, and net/http's server can use the
// connection again or close it: what it reads of such a body must not collide with its own reading.
func TestUnreadBodies(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: inParts("HTTP/1.1 200 OK\r\n\r\n", "one", "two")}, gateway.App{Name: "a", Routes: []gateway.Route{{
		Path: "/", Target: gateway.Target{Function: "f"}, HTTP: true, Streams: true, MaxBody: 1 << 20,
	}}})
	start(t, g)
	var said bytes.Buffer
	server := httptest.NewUnstartedServer(g)
	server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&said, nil), slog.LevelError)
	server.Start()
	for _, url := range []string{server.URL, "http://" + serve(t, g)} {
		postUnread(t, url)
		postExpectant(t, strings.TrimPrefix(url, "http://"))
	}
	server.Close()
	if said.Len() > 0 {
		t.Errorf("the server said %.600s", said.String())
	}
}

func postUnread(t *testing.T, url string) {
	t.Helper()
	for _, size := range []int{1, 40_000, 100_000, 300_000, 600_000, 1 << 20} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(strings.Repeat("y", size))
			if chunked {
				body = io.MultiReader(body) // whose length http.NewRequest does not know
			}
			resp, err := http.Post(url+"/a/", "text/plain", body)
			if err != nil {
				t.Errorf("%s, %d bytes, chunked %v: %v", url, size, chunked, err)
				continue
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(b) != "onetwo" {
				t.Errorf("%d bytes, chunked %v: %q, %v", size, chunked, b, err)
			}
		}
	}
}

// postExpectant waits for permission to send a body. The function does not read it, so the whole
// response comes instead.
func postExpectant(t *testing.T, addr string) {
	t.Helper()
	for _, length := range []string{"Content-Length: 200000", "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.WriteString(conn, "POST /a/ HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"+length+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || string(b) != "onetwo" || err != nil {
			t.Errorf("%s: %s, %q, %v", length, resp.Status, b, err)
		}
		_ = conn.Close()
	}
}
