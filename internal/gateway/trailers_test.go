package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/gateway"
)

// trailersOf answers with what a function sees of a request's trailers: the announcement, whether the
// metas are there before the body was read, and the metas afterwards.
func trailersOf(_ context.Context, c gateway.Call) (gateway.Answer, error) {
	_, early := c.Meta("trailers")
	var rest []byte
	if c.Stream != nil {
		b, err := io.ReadAll(c.Stream)
		if err != nil {
			return gateway.Answer{}, err
		}
		rest = b
	}
	announced := ""
	for line := range strings.Lines(string(c.Body)) {
		if name, ok := strings.CutPrefix(line, "Trailer: "); ok {
			announced = strings.TrimSpace(name)
		}
	}
	names, _ := c.Meta("trailers")
	sum, _ := c.Meta("trailer.x-sum")
	host, hasHost := c.Meta("trailer.Host")
	return gateway.Answer{Body: fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n\r\n%s|%t|%s|%s|%s%t|%d", announced, early, names, sum, host, hasHost, len(rest)), Message: true}, nil
}

const chunkedHead = "POST /a/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"

// TestRequestTrailers: the trailers of a request reach a function after its body, announced or not.
// Those that are about the message itself do not.
func TestRequestTrailers(t *testing.T) {
	for name, c := range map[string]struct{ request, want string }{
		"announced":   {chunkedHead + "Trailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n", "X-Sum|false|X-Sum|42|false|3"},
		"unannounced": {chunkedHead + "\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\nA: b\r\n\r\n", "|false|A, X-Sum|42|false|3"},
		"none came":   {chunkedHead + "Trailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "X-Sum|false|||false|3"},
		"twice":       {chunkedHead + "\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n", "|false|X-Sum|1, 2|false|0"},
		"of framing":  {chunkedHead + "\r\n0\r\nHost: evil\r\nAuthorization: x\r\nContent-Length: 3\r\nX-Sum: 1\r\n\r\n", "|false|X-Sum|1|false|0"},
		"no trailers": {getOdd, "|false|||false|0"},
		"a header":    {"GET /a/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTrailers: X-Sum\r\nTrailer.x-Sum: 3\r\n\r\n", "|false|||false|0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := overConn(t, trailersOf, c.request)
			if err != nil || got.StatusCode != http.StatusOK || got.text != c.want {
				t.Errorf("status %d, %q (%v), want %q", got.StatusCode, got.text, err, c.want)
			}
		})
	}
}

// TestTooManyTrailers: trailers have a bound, for functions that read the body themselves and others.
func TestTooManyTrailers(t *testing.T) {
	for name, c := range map[string]struct {
		trailers string
		status   int
	}{
		"many":    {strings.Repeat("A: b\r\n", 65), http.StatusRequestHeaderFieldsTooLarge},
		"most":    {strings.Repeat("A: b\r\n", 64), http.StatusOK},
		"large":   {"A: " + strings.Repeat("x", 5000) + "\r\n", http.StatusBadRequest}, // net/http's own bound
		"endless": {strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 10), http.StatusBadRequest},
	} {
		for _, streams := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streams %t", name, streams), func(t *testing.T) {
				got, _, err := overRoute(t, trailersOf, streams, chunkedHead+"\r\n3\r\nabc\r\n0\r\n"+c.trailers+"\r\n")
				if err != nil || got.StatusCode != c.status {
					t.Errorf("status %d, %v, want %d", got.StatusCode, err, c.status)
				}
			})
		}
	}
}

// TestTrailersOfHTTP2: a stream's trailers are the same to a function, and have a bound that is the
// gateway's.
func TestTrailersOfHTTP2(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: invoke(trailersOf)}, gateway.App{Name: "a", Routes: []gateway.Route{{
		Path: "/", Target: gateway.Target{Function: "f"}, HTTP: true, Streams: true, MaxBody: 1 << 20,
	}}})
	server := httptest.NewUnstartedServer(g)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{Protocols: server.Config.Protocols}
	t.Cleanup(transport.CloseIdleConnections)
	for value, want := range map[string]string{
		"42": "200 X-Sum|false|X-Sum|42|false|3", strings.Repeat("x", 9<<10): "431 ",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/a/", io.MultiReader(strings.NewReader("abc")))
		if err != nil {
			t.Fatal(err)
		}
		r.Trailer = http.Header{"X-Sum": {value}}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %s", answer.StatusCode, b); !strings.HasPrefix(got, want) || answer.ProtoMajor != 2 {
			t.Errorf("HTTP/%d: got %.300q, want %q", answer.ProtoMajor, got, want)
		}
	}
}
