package gateway_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
