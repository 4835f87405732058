package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/gateway"
)

// listenWithServe serves a handler with gateway.Serve, until the test ends.
func listenWithServe(t *testing.T, handler http.HandlerFunc) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, MaxHeaderBytes: 64 << 10}
	done := make(chan error, 1)
	go func() { done <- gateway.Serve(server, l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String()
}

// send sends bytes to an address and returns its responses, the last one with its connection's end.
func send(t *testing.T, addr, sent string) (answers []answer) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, sent) }()
	from := bufio.NewReader(conn)
	for {
		r, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		closes := r.Close
		answers = append(answers, read(t, r))
		if closes {
			return answers
		}
	}
}

// Requests that net/http can't read are answered with problem documents, whichever server has the
// connection, as its first request or a later one.
func TestUnreadableRequests(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("x"), nil })},
		shop(gateway.Route{Path: "/", Target: to("f")}))
	start(t, g)
	servers := map[string]string{
		"gateway": serve(t, g),
		"Serve":   listenWithServe(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }),
	}
	const line = "GET /shop/ HTTP/1.1\r\n"
	for name, c := range map[string]struct {
		sent   string
		status int
		detail string
	}{
		"huge head":  {line + "Host: x\r\nA: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", 431, "the head of the request is larger than 64 KiB: send less in its path and header fields, cookies among them"},
		"no request": {"hello\r\n\r\n", 400, "the request can't be read: it is no message of HTTP/1.1"},
		"no host":    {line + "\r\n", 400, "the request can't be read: missing required Host header"},
		"field":      {line + "Host: x\r\nA: \x00\r\n\r\n", 400, "the request can't be read: it is no message of HTTP/1.1"},
		"coding":     {"POST /shop/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "the request can't be read: Unsupported transfer encoding"},
		"version":    {"GET /shop/ HTTP/3.0\r\nHost: x\r\n\r\n", 505, "the request can't be read: unsupported protocol version"},
	} {
		for server, addr := range servers {
			for position, before := range map[string]string{"first": "", "after plain": line + "Host: x\r\n\r\n", "after other": "OTHER /shop/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
				t.Run(name+", "+server+", "+position, func(t *testing.T) {
					answers := send(t, addr, before+c.sent)
					got := answers[len(answers)-1]
					var p gateway.Problem
					if err := json.Unmarshal([]byte(got.text), &p); err != nil || got.Header.Get("Content-Type") != "application/problem+json" {
						t.Fatalf("%v: %q", got, got.text)
					}
					if diff := cmp.Diff(p, gateway.Problem{Title: http.StatusText(c.status), Status: c.status, Detail: c.detail}); diff != "" || got.StatusCode != c.status {
						t.Errorf("status %d, %s", got.StatusCode, diff)
					}
				})
			}
		}
	}
}

// What a function answers is passed on, even if it reads like net/http's own response to a request
// that it can't read, and is written to the connection alone.
func TestBodiesLikeErrors(t *testing.T) {
	body := "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request" + strings.Repeat(" ", 64<<10)
	g := newGateway(t, gateway.Options{Invoker: invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text(body), nil })},
		shop(gateway.Route{Path: "/", Target: to("f")}))
	start(t, g)
	for server, addr := range map[string]string{
		"gateway": serve(t, g),
		"Serve": listenWithServe(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, body)
		}),
	} {
		for name, before := range map[string]string{"plain": "", "after other": "OTHER /shop/ HTTP/1.1\r\nHost: x\r\n\r\n", "after odd": "GET /shop/ HTTP/1.1\r\nHost: x\r\nPragma: x\r\n\r\n"} {
			t.Run(server+", "+name, func(t *testing.T) {
				answers := send(t, addr, before+plainGet+"GET /shop/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
				for _, got := range answers {
					if got.text != body {
						t.Errorf("got %q", got.text[:min(len(got.text), 300)])
					}
				}
				if want := 2 + min(len(before), 1); len(answers) != want {
					t.Errorf("%d responses, want %d", len(answers), want)
				}
			})
		}
	}
}
