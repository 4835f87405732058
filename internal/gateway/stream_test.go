package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/gateway"
)

// inParts answers with the parts of a message through the call's stream.
func inParts(parts ...string) invoke {
	return func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		for _, part := range parts {
			if _, err := io.WriteString(c.Stream, part); err != nil {
				return gateway.Answer{Streamed: true}, err
			}
		}
		return gateway.Answer{Streamed: true, Message: true}, nil
	}
}

// overConn sends a request over a connection to a gateway with one route that streams, and returns
// what comes back.
func overConn(t *testing.T, i invoke, request string) (got answer, length int64, err error) {
	t.Helper()
	return overRoute(t, i, true, request)
}

// overRoute is overConn for a function that may not stream.
func overRoute(t *testing.T, i invoke, streams bool, request string) (got answer, length int64, err error) {
	t.Helper()
	g := newGateway(t, gateway.Options{Invoker: i}, gateway.App{Name: "a", Routes: []gateway.Route{{
		Path: "/", Target: gateway.Target{Function: "f"}, HTTP: true, Streams: streams, MaxBody: 1 << 20,
	}}})
	start(t, g)
	conn, err := net.Dial("tcp", serve(t, g))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	asked := &http.Request{Method: strings.Fields(request)[0]}
	resp, err := http.ReadResponse(bufio.NewReader(conn), asked)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, resp.ContentLength, err
}

// getPlain is served by the gateway, getOdd by net/http.
const (
	getPlain  = "GET /a/ HTTP/1.1\r\nHost: x\r\n\r\n"
	getOdd    = "GET /a/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	headPlain = "HEAD /a/ HTTP/1.1\r\nHost: x\r\n\r\n"
)

// A response message in parts is sent in parts, by both servers, whatever its parts are.
func TestStreamedResponse(t *testing.T) {
	large := strings.Repeat("x", 100_000)
	for name, test := range map[string]struct {
		parts  []string
		body   string
		length int64
	}{
		"no length":     {[]string{"HTTP/1.1 200 OK\r\n\r\none ", "two ", "three"}, "one two three", -1},
		"a length":      {[]string{"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\none ", "two"}, "one two", 7},
		"a parted head": {[]string{"HTTP/1.1 2", "00 OK\r\nX-A: b\r\n", "\r\n", "one"}, "one", -1},
		"large":         {[]string{"HTTP/1.1 200 OK\r\n\r\n", large, large}, large + large, -1},
		"an empty part": {[]string{"HTTP/1.1 200 OK\r\n\r\n", "", "one"}, "one", -1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, request := range []string{getPlain, getOdd, headPlain} {
				got, length, err := overConn(t, inParts(test.parts...), request)
				want := test.body
				if request == headPlain {
					want = ""
				}
				if err != nil || got.StatusCode != http.StatusOK || got.text != want || request != headPlain && length != test.length {
					t.Errorf("%.4s: status %d, length %d, %d bytes, %v", request, got.StatusCode, length, len(got.text), err)
				}
			}
		})
	}
}

// A response that ends too early, or fails, is one whose end is missing; one that is wrong from the
// beginning is 502.
func TestStreamedResponseFails(t *testing.T) {
	failing := func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		_, _ = io.WriteString(c.Stream, "HTTP/1.1 200 OK\r\n\r\nhalf")
		return gateway.Answer{Streamed: true}, errors.New("it broke")
	}
	for name, test := range map[string]struct {
		answer invoke
		status int
		cut    bool
	}{
		"fails":        {failing, 200, true},
		"short":        {inParts("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none"), 200, true},
		"long":         {inParts("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "one"), 200, true},
		"chunked":      {inParts("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "one"), 502, false},
		"no message":   {inParts("hello\r\n\r\n"), 502, false},
		"no head":      {inParts("HTTP/1.1 200 OK\r\n"), 502, false},
		"endless head": {inParts("HTTP/1.1 200 OK\r\nA: ", strings.Repeat("x", 70_000)), 502, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, request := range []string{getPlain, getOdd} {
				got, _, err := overConn(t, test.answer, request)
				if got.StatusCode != test.status || (err != nil) != test.cut {
					t.Errorf("%q: status %d, %v", request, got.StatusCode, err)
				}
			}
		})
	}
}

// The function reads a large body itself, decoded, and gets a small one with the message.
func TestStreamedRequest(t *testing.T) {
	for name, test := range map[string]struct{ request, head, rest string }{
		"small":   {"POST /a/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\none", "\r\n\r\none", ""},
		"chunked": {"POST /a/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n2\r\n..\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n", "one.."},
		"large":   {"POST /a/ HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n" + strings.Repeat("y", 70_000), "Content-Length: 70000\r\n\r\n", strings.Repeat("y", 70_000)},
	} {
		t.Run(name, func(t *testing.T) {
			var head, rest string
			_, _, err := overConn(t, func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
				b, err := io.ReadAll(c.Stream)
				head, rest = string(c.Body), string(b)
				return text("HTTP/1.1 200 OK\r\n\r\nok"), errors.Join(err)
			}, test.request)
			if err != nil || !strings.HasSuffix(head, test.head) || rest != test.rest {
				t.Errorf("head %.300q, %d bytes follow, %v", head, len(rest), err)
			}
		})
	}
}
