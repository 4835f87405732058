package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/gateway"
)

// TestRequestMessage lets net/http read what a function gets.
func TestRequestMessage(t *testing.T) {
	var got *http.Request
	var gotBody string
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.Body)))
		if err != nil {
			return gateway.Answer{}, err
		}
		b, err := io.ReadAll(r.Body)
		got, gotBody = r, string(b)
		return text("HTTP/1.1 204 No Content\r\n\r\n"), err
	})
	g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f"), HTTP: true}))
	r := post("/shop/a%2Fb/c?x=1&y=%20", "hello")
	r.ContentLength = -1
	maps.Copy(r.Header, http.Header{
		"Cookie": {"a=1", "b=2"}, "X-Forwarded-Prefix": {"/admin"}, "Connection": {"close, x-mine"}, "X-Mine": {"1"}, "Te": {"trailers"},
		"Transfer-Encoding": {"chunked"}, "Content-Length": {"99"}, "Upgrade": {"h2c"}, "Keep-Alive": {"5"}, "Proxy-Authorization": {"secret"},
		"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "Tracestate": {"a=b"}, "Expect": {"100-continue"},
		"X-Evil": {"a\r\nX-Injected: 1"}, "X-Bad Name": {"1"},
	})
	if answer := ask(g, r); answer.StatusCode != http.StatusBadGateway { // it says no Message
		t.Errorf("status %d", answer.StatusCode)
	}
	want := http.Header{
		"Cookie": {"a=1", "b=2"}, "X-Forwarded-Prefix": {"/shop"}, "Content-Length": {"5"}, "Tracestate": {"a=b"},
		"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "X-Evil": {"a  X-Injected: 1"},
	}
	if diff := cmp.Diff(got.Header, want); diff != "" {
		t.Error(diff)
	}
	if got.Method != "POST" || got.Host != "example.com" || got.RequestURI != "/a%2Fb/c?x=1&y=%20" || gotBody != "hello" {
		t.Errorf("got %s %s %s %q", got.Method, got.Host, got.RequestURI, gotBody)
	}
}

func TestTargets(t *testing.T) {
	for name, c := range map[string]struct{ target, want string }{
		"root": {"/shop", "/"}, "query": {"/shop?x", "/?x"}, "path": {"/shop/a", "/a"}, "absolute": {"http://h/shop/a?b", "/a?b"},
		"escaped": {"/sh%6Fp/a", "/a"}, "twice": {"/shop/shop/a", "/shop/a"},
	} {
		t.Run(name, func(t *testing.T) {
			message, err := gateway.AppendMessage(get(c.target), "shop", 100)
			line, _, _ := strings.Cut(string(message), "\r\n")
			if want := "GET " + c.want + " HTTP/1.1"; line != want || err != nil {
				t.Errorf("got %q (%v), want %q", line, err, want)
			}
		})
	}
}

func TestTracePassedOn(t *testing.T) {
	valid := regexp.MustCompile(`Traceparent: 00-[0-9a-f]{32}-[0-9a-f]{16}-00\r\n`)
	message, err := gateway.AppendMessage(get("/shop/"), "shop", 100)
	if err != nil || !valid.Match(message) {
		t.Errorf("no new trace in %q (%v)", message, err)
	}
}

func TestResponseMessage(t *testing.T) {
	ok := func(status int, body string, header ...string) gateway.Response {
		r := gateway.Response{Status: status, Header: http.Header{}}
		if body != "" {
			r.Body = []byte(body)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		return r
	}
	large := strings.Repeat("x", 4096)
	for name, c := range map[string]struct {
		message, method string
		want            gateway.Response
	}{
		"least":         {"HTTP/1.1 200 OK\r\n\r\n", "GET", ok(200, "")},
		"no reason":     {"HTTP/1.1 200\r\n\r\nx", "GET", ok(200, "x")},
		"1.0":           {"HTTP/1.0 404 Not Found\r\n\r\n", "GET", ok(404, "")},
		"headers":       {"HTTP/1.1 200 OK\r\ncontent-type: \ttext/x \r\nSet-Cookie: a\r\nSet-Cookie: b\r\nX-Empty:\r\n\r\nx", "GET", ok(200, "x", "Content-Type", "text/x", "Set-Cookie", "a", "Set-Cookie", "b", "X-Empty", "")},
		"length":        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "GET", ok(200, "abc")},
		"hop by hop":    {"HTTP/1.1 200 OK\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nTrailer: X\r\nProxy-Authenticate: x\r\n\r\n", "GET", ok(200, "")},
		"large":         {"HTTP/1.1 200 OK\r\n\r\n" + large, "GET", ok(200, large, "Content-Length", "4096")},
		"chunked":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n", "GET", ok(200, "abcde", "Trailer:X-Trailer", "1")},
		"head":          {"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n", "HEAD", ok(200, "", "Content-Length", "30")},
		"head, body":    {"HTTP/1.1 200 OK\r\n\r\nbody", "HEAD", ok(200, "")},
		"head, chunked": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HEAD", ok(200, "")},
		"no content":    {"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "GET", ok(204, "")},
		"not modified":  {"HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\nContent-Length: 7\r\n\r\n", "GET", ok(304, "", "Etag", `"x"`, "Content-Length", "7")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gateway.ParseResponse([]byte(c.message), c.method)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWrongResponseMessage(t *testing.T) {
	const line = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct{ message, want string }{
		"nothing":           {"", "the function returned nothing: an HTTP function answers with a message, like HTTP/1.1 204 No Content"},
		"no head":           {"hello", "the response's head does not end: want an empty line before the body"},
		"no line":           {"hello\r\n\r\n", `the response begins with "hello": want a line like HTTP/1.1 200 OK`},
		"http 2":            {"HTTP/2.0 200 OK\r\n\r\n", `the response begins with "HTTP/2.0 200 OK": want a line like HTTP/1.1 200 OK`},
		"informational":     {"HTTP/1.1 101 Switching\r\n\r\n", `the response begins with "HTTP/1.1 101 Switching": the status must be from 200 to 599`},
		"large status":      {"HTTP/1.1 600 X\r\n\r\n", `the response begins with "HTTP/1.1 600 X": the status must be from 200 to 599`},
		"letters":           {"HTTP/1.1 2x0 X\r\n\r\n", `the response begins with "HTTP/1.1 2x0 X": the status must have three digits`},
		"four digits":       {"HTTP/1.1 2000\r\n\r\n", `the response begins with "HTTP/1.1 2000": want a line like HTTP/1.1 200 OK`},
		"reason":            {"HTTP/1.1 200 O\x01\r\n\r\n", `the response begins with "HTTP/1.1 200 O\x01": it has control characters`},
		"no end":            {line + "A: b\r\n", "the response's head does not end: want an empty line before the body"},
		"line feeds":        {"HTTP/1.1 200 OK\n\nx", "a line of the response's head ends without a carriage return"},
		"bare line feed":    {line + "A: b\nC: d\r\n\r\n", "a line of the response's head ends without a carriage return"},
		"bare return":       {line + "A: b\rC: d\r\n\r\n", `the header "A: b\rC: d": its value has control characters`},
		"nul":               {line + "A: b\x00\r\n\r\n", `the header "A: b\x00": its value has control characters`},
		"continued":         {line + "A: b\r\n c\r\n\r\n", `the header " c": want a name, a colon and a value`},
		"continued, colon":  {line + "A: b\r\n c: d\r\n\r\n", `the header " c: d": its name has ' '`},
		"blank before ':'":  {line + "A : b\r\n\r\n", `the header "A : b": its name has ' '`},
		"no name":           {line + ": b\r\n\r\n", `the header ": b": want a name, a colon and a value`},
		"length twice":      {line + "Content-Length: 1\r\ncontent-length: 1\r\n\r\nx", `the header Content-Length "1": want one of them, with a number`},
		"length list":       {line + "Content-Length: 1, 1\r\n\r\nx", `the header Content-Length "1, 1": want one of them, with a number`},
		"length sign":       {line + "Content-Length: +1\r\n\r\nx", `the header Content-Length "+1": want one of them, with a number`},
		"length overflow":   {line + "Content-Length: 99999999999999999999\r\n\r\nx", `the header Content-Length "99999999999999999999": want one of them, with a number`},
		"length, nothing":   {line + "Content-Length:\r\n\r\nx", `the header Content-Length "": want one of them, with a number`},
		"body short":        {line + "Content-Length: 2\r\n\r\nx", "the response says that its body has 2 bytes, and it has 1"},
		"body long":         {line + "Content-Length: 1\r\n\r\nxHTTP/1.1 200 OK", "the response says that its body has 1 bytes, and it has 16"},
		"both":              {line + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "the response has both Content-Length and Transfer-Encoding: leave one out"},
		"coding":            {line + "Transfer-Encoding: gzip, chunked\r\n\r\n", `the header Transfer-Encoding "gzip, chunked": want none, or one that is chunked`},
		"coding twice":      {line + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", `the header Transfer-Encoding "chunked": want none, or one that is chunked`},
		"chunk cut":         {line + "Transfer-Encoding: chunked\r\n\r\n5\r\nabc", "a chunk of the response is cut off"},
		"chunk end":         {line + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n", "a chunk of the response is cut off"},
		"chunk size":        {line + "Transfer-Encoding: chunked\r\n\r\n-1\r\nabc", `a chunk of the response has the size "-1"`},
		"no last chunk":     {line + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "the response's last chunk is missing"},
		"behind last chunk": {line + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1", "the response goes on after its end for 8 bytes"},
		"no end of chunks":  {line + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n", "the response does not end after its last chunk"},
		"large line":        {line + "A: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", "the response's head is larger than 65536 bytes"},
		"large head":        {line + strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 70) + "\r\n", "the response's head is larger than 65536 bytes"},
		"many headers":      {line + strings.Repeat("A: b\r\n", 257) + "\r\n", "the response has more than 256 headers"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gateway.ParseResponse([]byte(c.message), "GET")
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v %v\nwant %s", got, err, c.want)
			}
		})
	}
}

// FuzzResponse: what the parser accepts net/http reads alike, and no header of the
// gateway's comes from a message.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: a\r\n\r\nabc", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200\r\nA:b\r\n\r\n",
		"HTTP/1.0 404 Not Found\r\nConnection: x\r\nX: y\r\n\r\nno", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := gateway.ParseResponse(message, http.MethodGet)
		if err != nil {
			return
		}
		for name, values := range got.Header {
			if strings.ContainsAny(name+strings.Join(values, ""), "\r\n\x00") {
				t.Fatalf("header %q: %q", name, values)
			}
			switch name {
			case "Connection", "Transfer-Encoding", "Upgrade", "Trailer", "Te", "Keep-Alive":
				t.Fatalf("header %q got through", name)
			}
		}
		compare(t, message, got)
	})
}

func compare(t *testing.T, message []byte, got gateway.Response) {
	other, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(message)), nil)
	if err != nil {
		t.Fatalf("net/http does not read it: %v", err)
	}
	defer other.Body.Close()
	body, err := io.ReadAll(other.Body)
	if err != nil || !bytes.Equal(body, got.Body) || other.StatusCode != got.Status {
		t.Fatalf("got %d %q, net/http reads %d %q (%v)", got.Status, got.Body, other.StatusCode, body, err)
	}
	for name, values := range got.Header {
		if trailer, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			if want := other.Trailer[trailer]; fmt.Sprint(values) != fmt.Sprint(want) {
				t.Fatalf("trailer %s: got %q, net/http reads %q", trailer, values, want)
			}
			continue
		}
		if want := other.Header[name]; name != "Content-Length" && fmt.Sprint(values) != fmt.Sprint(want) {
			t.Fatalf("header %s: got %q, net/http reads %q", name, values, want)
		}
	}
}

// FuzzRequest: whatever a request's parts are, its message is one request.
func FuzzRequest(f *testing.F) {
	f.Add("/shop/a?b", "X-A", "b", "h", "body")
	f.Add("/shop/a b", "X A", "b\r\nC: d", "h\r\nX: y", "")
	f.Fuzz(func(t *testing.T, target, name, value, host, body string) {
		r := httptest.NewRequest(http.MethodPost, "/shop/", strings.NewReader(body))
		r.RequestURI, r.Host, r.Header = target, host, http.Header{name: {value}}
		message, err := gateway.AppendMessage(r, "shop", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		in := bytes.NewReader(message)
		got, err := http.ReadRequest(bufio.NewReader(in))
		if err != nil {
			return // an odd host or target is refused as a whole
		}
		defer got.Body.Close()
		gotBody, err := io.ReadAll(got.Body)
		if string(gotBody) != body || err != nil || in.Len() != 0 {
			t.Fatalf("got the body %q (%v), want %q", gotBody, err, body)
		}
		if len(got.Header) > 4 { // the prefix, the trace, the length and this one
			t.Fatalf("headers %q", got.Header)
		}
	})
}
