package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/gateway"
)

// plainHeads are heads that are served without net/http.
func plainHeads() []string {
	return []string{
		"GET /shop/ HTTP/1.1\r\nHost: x\r\n",
		"POST /shop/a?b=%zz&c HTTP/1.1\r\nhost: x:80\r\ncontent-length: 3\r\nX-A: 1\r\nx-a: \t2 \r\n",
		"DELETE /shop/%2f%20 HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: Keep-Alive\r\nX-Empty:\r\n",
		"PUT /shop/!'()* HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nCookie: a=\xc3\xa9\r\n",
	}
}

// oddHeads are heads that are left to net/http, which serves or refuses them.
func oddHeads() map[string]string {
	const line, host = "POST /shop/ HTTP/1.1\r\n", "Host: x\r\n"
	heads := map[string]string{
		"no host": line, "two hosts": line + host + host, "empty host": line + "Host:\r\n", "host": line + "Host: a b\r\n",
		"old": "GET /shop/ HTTP/1.0\r\n" + host, "other method": "BREW /shop/ HTTP/1.1\r\n" + host, "small method": "get /shop/ HTTP/1.1\r\n" + host,
		"absolute": "GET http://x/shop/ HTTP/1.1\r\n" + host, "all": "OPTIONS * HTTP/1.1\r\n" + host, "two slashes": "GET //shop/ HTTP/1.1\r\n" + host,
		"fragment": "GET /shop/#a HTTP/1.1\r\n" + host, "bad escape": "GET /shop/%zz HTTP/1.1\r\n" + host, "blank": "GET /shop/ a HTTP/1.1\r\n" + host,
		"not ASCII": "GET /shop/\xc3\xa9 HTTP/1.1\r\n" + host, "other version": "GET /shop/ HTTP/1.2\r\n" + host, "no version": "GET /shop/\r\n" + host,
		"blank before": " " + line + host, "line feed": "GET /shop/ HTTP/1.1\n" + host, "bare return": line + host + "A: b\rC: d\r\n",
		"bare feed": line + host + "A: b\nC: d\r\n", "nul": line + host + "A: \x00\r\n", "folded": line + host + "A: b\r\n c\r\n", "name": line + host + "A : b\r\n",
		"no name": line + host + ": b\r\n", "no colon": line + host + "A\r\n",
		"length twice": line + host + "Content-Length: 3\r\nContent-Length: 3\r\n", "lengths": line + host + "Content-Length: 3\r\nContent-Length: 4\r\n",
		"length list": line + host + "Content-Length: 3, 3\r\n", "length sign": line + host + "Content-Length: +3\r\n", "length hex": line + host + "Content-Length: 0x3\r\n",
		"length zeros": line + host + "Content-Length: 03\r\n", "no length": line + host + "Content-Length:\r\n", "huge": line + host + "Content-Length: 99999999999999999999\r\n",
		"large": line + host + "Content-Length: 70000\r\n", "length and chunks": line + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
	}
	for _, field := range []string{
		"Transfer-Encoding: chunked", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked", "Expect: 100-continue", "Upgrade: websocket", "Connection: close",
		"Connection: keep-alive, x", "Trailer: A", "Pragma: no-cache",
	} {
		heads[field] = line + host + field + "\r\n"
	}
	return heads
}

func TestPlainHead(t *testing.T) {
	for _, head := range plainHeads() {
		if r, size, ok := gateway.ParsePlain(head + "\r\n"); !ok || size < len(head)+2 {
			t.Errorf("%q is odd: %v", head, r)
		}
	}
	for name, head := range oddHeads() {
		if _, _, ok := gateway.ParsePlain(head + "\r\n"); ok {
			t.Errorf("%s: %q is plain", name, head)
		}
	}
}

// FuzzPlainHead: what is served without net/http, net/http takes for the same request.
func FuzzPlainHead(f *testing.F) {
	for _, head := range plainHeads() {
		f.Add(head + "\r\n")
	}
	for _, head := range oddHeads() {
		f.Add(head + "\r\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, size, ok := gateway.ParsePlain(text)
		if !ok {
			return
		}
		text += strings.Repeat("x", max(0, size-len(text)))
		from := bufio.NewReader(strings.NewReader(text))
		want, err := http.ReadRequest(from)
		if err != nil {
			t.Fatalf("net/http refuses %q: %v", text, err)
		}
		body, err := io.ReadAll(want.Body)
		if rest, _ := io.ReadAll(from); err != nil || len(text)-len(rest) != size || int64(len(body)) != got.ContentLength {
			t.Errorf("%q: net/http reads %d bytes with a body of %d (%v), not %d with %d", text, len(text)-len(rest), len(body), err, size, got.ContentLength)
		}
		type parts struct {
			Method, Host, URI string
			URL               any
			Header            http.Header
			Length            int64
			Close             bool
			Coding            []string
		}
		of := func(r *http.Request) parts {
			return parts{r.Method, r.Host, r.RequestURI, *r.URL, r.Header, r.ContentLength, r.Close, r.TransferEncoding}
		}
		if diff := cmp.Diff(of(got), of(want)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	})
}

// seen is what an invoker got of a request.
type seen struct{ Method, Path, Body, Field string }

// withoutTrace is a call's body without what differs each time.
func withoutTrace(c gateway.Call) string {
	if !c.HTTP {
		return string(c.Body)
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.Body)))
	if err != nil {
		return err.Error()
	}
	r.Header.Del("Traceparent")
	body, err := io.ReadAll(r.Body)
	return fmt.Sprint(r.Method, r.RequestURI, r.Host, r.Header, string(body), err)
}

// recordingApp answers by what it is asked, and notes each request.
func recordingApp(t testing.TB, opts gateway.Options) (*gateway.Gateway, func() []seen) {
	var mu sync.Mutex
	var all []seen
	opts.Invoker = invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		s := seen{Body: withoutTrace(c)}
		s.Method, _ = c.Meta("method")
		s.Path, _ = c.Meta("path")
		s.Field, _ = c.Meta("x-field")
		mu.Lock()
		all = append(all, s)
		mu.Unlock()
		size, _ := c.Meta("x-size")
		if c.HTTP {
			return gateway.Answer{Body: []byte("HTTP/1.1 203 OK\r\nX-One: 1\r\nX-One: 2\r\n\r\n" + s.Path + strings.Repeat("y", len(size)*10_000)), Message: true}, nil
		}
		return text("got " + s.Method + s.Path + strings.Repeat("z", len(size)*10_000)), nil
	})
	opts.MaxBody = 100
	g := newGateway(t, opts, shop(
		gateway.Route{Path: "/", Target: to("f")}, gateway.Route{Path: "/http", Target: to("f"), HTTP: true}, gateway.Route{Path: "/get", Methods: []string{"GET"}, Target: to("f")},
		gateway.Route{Path: "/live", WebSocket: true, Target: to("f")}, gateway.Route{Path: "/a/{b}/c", Methods: []string{"GET", "POST"}, Target: to("f")},
	))
	return g, func() []seen { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
}

// pieces are parts of what clients send.
func pieces() []string {
	const host = "Host: x\r\n"
	all := []string{
		"GET /shop/ HTTP/1.1\r\n" + host + "\r\n", "POST /shop/a/%2f/c HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhello",
		"HEAD /shop/ HTTP/1.1\r\n" + host + "\r\n", "HEAD /shop/http HTTP/1.1\r\n" + host + "\r\n", "GET /shop/http HTTP/1.1\r\n" + host + "X-Field: 7\r\n\r\n",
		"POST /shop/get HTTP/1.1\r\n" + host + "\r\n", "GET /shop/live HTTP/1.1\r\n" + host + "\r\n", "GET /shop HTTP/1.1\r\n" + host + "\r\n",
		"GET /shop/x/../http HTTP/1.1\r\n" + host + "\r\n", "POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 101\r\n\r\n" + strings.Repeat("x", 101),
		"GET /shop/ HTTP/1.1\r\n" + host + "X-Size: 12345678\r\n\r\n", "GET /shop/http HTTP/1.1\r\n" + host + "X-Size: 12345678\r\n\r\n",
		"GET /other/ HTTP/1.1\r\n" + host + "\r\n", "GET / HTTP/1.1\r\n" + host + "\r\n", "GET /shop/http HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
		"POST /shop/http HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel\r\n",
		"POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\nhel\r\n", "POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
		"POST /shop/ HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", "GET /shop/ HTTP/1.0\r\n\r\n", "\r\n", "x", "GET /shop/ HTTP/1.1\r\n",
	}
	for _, head := range plainHeads() {
		all = append(all, head+"\r\nabc")
	}
	for _, head := range oddHeads() {
		all = append(all, head+"\r\nabc")
	}
	slices.Sort(all)
	return all
}

// scripted connection brings what a client sent, piece by piece, and then its end.
type scripted struct {
	net.Conn // its addresses
	mu       sync.Mutex
	pieces   [][]byte
	answers  bytes.Buffer
	closed   chan struct{}
	close    func()
}

func newScripted(sent []byte, cuts []int) *scripted {
	s := &scripted{closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	s.Conn, _ = net.Pipe()
	for _, end := range append(slices.Sorted(slices.Values(cuts)), len(sent)) {
		begin := 0
		for _, p := range s.pieces {
			begin += len(p)
		}
		s.pieces = append(s.pieces, sent[begin:end])
	}
	return s
}

func (s *scripted) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pieces) > 0 && len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.pieces[0])
	s.pieces[0] = s.pieces[0][n:]
	return n, nil
}

func (s *scripted) Write(b []byte) (int, error)      { return s.answers.Write(b) }
func (s *scripted) Close() error                     { s.close(); return s.Conn.Close() }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }

// withProblems is a connection on which errors of net/http's server are sent as the gateway sends them.
type withProblems struct{ net.Conn }

func (c withProblems) Write(b []byte) (int, error) {
	if response, ok := gateway.ReplaceError(b); ok {
		b = response
	}
	return c.Conn.Write(b)
}

// once is a listener with one connection.
type once struct {
	net.Conn
	taken bool
}

func (o *once) Accept() (net.Conn, error) {
	if o.taken {
		return nil, net.ErrClosed
	}
	o.taken = true
	return o.Conn, nil
}
func (o *once) Addr() net.Addr { return o.LocalAddr() }
func (o *once) Close() error   { return nil }

// said is what a client reads of an answer.
type said struct {
	Status int
	Header http.Header
	Body   string
	Close  bool
}

// answersTo reads the answers to what was sent.
func (s *scripted) answersTo(t require, sent []byte) (all []said) {
	var methods []string
	for from := bufio.NewReader(bytes.NewReader(sent)); ; {
		// net/http ignores up to two empty lines after a POST.
		for i := 0; i < 2 && len(methods) > 0 && methods[len(methods)-1] == http.MethodPost; i++ {
			if line, _ := from.Peek(2); string(line) == "\r\n" {
				_, _ = from.Discard(2)
			}
		}
		r, err := http.ReadRequest(from)
		if err != nil {
			break
		}
		methods = append(methods, r.Method)
		_, _ = io.Copy(io.Discard, r.Body)
	}
	for from := bufio.NewReader(&s.answers); ; {
		if _, err := from.Peek(1); err != nil {
			return all
		}
		method := http.MethodGet
		if len(methods) > 0 {
			method = methods[0]
		}
		r, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("the answers to %q can't be read: %v", sent, err)
		}
		if r.StatusCode != http.StatusContinue && len(methods) > 0 {
			methods = methods[1:]
		}
		body, err := io.ReadAll(r.Body)
		if r.Body.Close(); err != nil {
			t.Fatalf("an answer to %q does not end: %v", sent, err)
		}
		for _, name := range []string{"Date", "Content-Length", "Connection"} {
			r.Header.Del(name)
		}
		trace, _, _ := strings.Cut(string(body), `"trace":`)
		all = append(all, said{r.StatusCode, r.Header, trace, r.Close})
	}
}

type require interface{ Fatalf(string, ...any) }

// TestLikeNetHTTP sends what clients send, in pieces and pipelined, to the gateway and
// to net/http's own server with the gateway as its handler: both see the same requests,
// and answer the same, until the gateway ends a connection early. Only net/http's own errors are in
// another form (TestUnreadableRequests).
func TestLikeNetHTTP(t *testing.T) {
	all := pieces()
	rapid.Check(t, func(r *rapid.T) {
		sent := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(all), 1, 5).Draw(r, "requests"), ""))
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(sent)), 0, 3).Draw(r, "cuts")
		ours, seenByUs := recordingApp(t, gateway.Options{})
		stop := run(t, ours)
		one := newScripted(sent, cuts)
		ours.ServeConn(one, nil)
		<-one.closed
		stop()
		theirs, seenByThem := recordingApp(t, gateway.Options{})
		two := newScripted(sent, cuts)
		server := http.Server{Handler: theirs, DisableGeneralOptionsHandler: true, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		_ = server.Serve(&once{Conn: withProblems{two}})
		<-two.closed
		got, want := one.answersTo(r, sent), two.answersTo(r, sent)
		requests, wantedRequests := seenByUs(), seenByThem()
		if last := len(got) - 1; mayEndEarly(sent) && last >= 0 && last < len(want) && got[last].Close {
			want, want[last].Close = want[:last+1], true
			wantedRequests = wantedRequests[:min(len(requests), len(wantedRequests))]
		}
		if diff := cmp.Diff(requests, wantedRequests); diff != "" {
			r.Errorf("requests of %q: %s", sent, diff)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			r.Errorf("answers to %q: %s", sent, diff)
		}
	})
}

// mayEndEarly reports whether the gateway may take pipelined requests for one with two lengths, whose
// connection it ends after the response.
func mayEndEarly(sent []byte) bool {
	text := bytes.ToLower(sent)
	return bytes.Contains(text, []byte("transfer-encoding")) && bytes.Contains(text, []byte("content-length"))
}
