package gateway_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/quota"
)

// Opcodes of RFC 6455, section 5.2.
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
	final          = 0x80
	rsv1           = 0x40
)

// frame is one of a client, masked.
func frame(first byte, payload string) []byte {
	b := unmasked(first, payload)
	size := len(b) - len(payload)
	b[1] |= 0x80
	masked := append(append([]byte(nil), b[:size]...), 1, 2, 3, 4)
	for i := range len(payload) {
		masked = append(masked, payload[i]^byte(i%4+1))
	}
	return masked
}

func unmasked(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}

func frames(all ...[]byte) []byte { return bytes.Join(all, nil) }

func status(code int, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(code))) + reason
}

// deflated compresses a message as RFC 7692, section 7.2.1, says.
func deflated(text string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed)
	_, _ = io.WriteString(w, text)
	_ = w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

// received is what a server answers: the messages and pongs, at most limit of them, and the
// code of its close frame, 0 for a connection that ends without one.
func received(t *testing.T, in *bufio.Reader, limit int) (answers []string, code int) {
	t.Helper()
	for len(answers) < limit {
		head := make([]byte, 2)
		if _, err := io.ReadFull(in, head); err != nil {
			return answers, 0
		}
		size := uint64(head[1])
		switch size {
		case 126:
			long := make([]byte, 2)
			_, _ = io.ReadFull(in, long)
			size = uint64(binary.BigEndian.Uint16(long))
		case 127:
			long := make([]byte, 8)
			_, _ = io.ReadFull(in, long)
			size = binary.BigEndian.Uint64(long)
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(in, payload); err != nil {
			return answers, 0
		}
		switch head[0] & 15 {
		case opClose:
			if len(payload) < 2 {
				return answers, 1005
			}
			return answers, int(binary.BigEndian.Uint16(payload))
		case opPong:
			answers = append(answers, "pong "+string(payload))
		case opPing:
		default:
			if head[0]&rsv1 != 0 {
				inflated, err := io.ReadAll(flate.NewReader(io.MultiReader(bytes.NewReader(payload), strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff"))))
				if err != nil {
					t.Error(err)
				}
				payload = inflated
			}
			answers = append(answers, string(payload))
		}
	}
	return answers, 0
}

// TestRFC6455 sends frames as the cases of Autobahn's suite do, whose numbers the names have,
// to a function that echoes messages.
func TestRFC6455(t *testing.T) {
	echo := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		kind, _ := c.Meta("ws.kind")
		switch kind {
		case "text":
			return actions{Send: []sendAction{{To: "self", Text: string(c.Body)}}}.answer(), nil
		case "binary":
			return actions{Send: []sendAction{{To: "self", Data: c.Body}}}.answer(), nil
		}
		return gateway.Answer{}, nil
	})
	g := newGateway(t, gateway.Options{Invoker: echo}, gateway.App{Name: "chat", Routes: []gateway.Route{
		{Path: "/", WebSocket: true, Target: to("f"), MaxBody: 1 << 20, Subprotocols: []string{"v2.chat", "v1.chat"}},
	}})
	start(t, g)
	addr := serve(t, g)
	bye := frame(final|opClose, status(1000, ""))
	long, longer := strings.Repeat("x", 126), strings.Repeat("y", 1<<16)
	for name, c := range map[string]struct {
		sent    []byte
		answers []string
		code    int
		offers  string // a header
		accepts string // a header of the answer
	}{
		"1.1.2 text":                         {frames(frame(final|opText, "hello"), bye), []string{"hello"}, 1000, "", ""},
		"1.1.3 text of 126 bytes":            {frames(frame(final|opText, long), bye), []string{long}, 1000, "", ""},
		"1.1.6 text of 65536 bytes":          {frames(frame(final|opText, longer), bye), []string{longer}, 1000, "", ""},
		"1.2.6 binary of 65536 bytes":        {frames(frame(final|opBinary, longer), bye), []string{longer}, 1000, "", ""},
		"2.1 empty ping":                     {frames(frame(final|opPing, ""), bye), []string{"pong "}, 1000, "", ""},
		"2.4 ping with 125 bytes":            {frames(frame(final|opPing, long[:125]), bye), []string{"pong " + long[:125]}, 1000, "", ""},
		"2.5 ping with 126 bytes":            {frame(final|opPing, long), nil, 1002, "", ""},
		"2.7 pong that nothing asked for":    {frames(frame(final|opPong, "x"), frame(final|opText, "a"), bye), []string{"a"}, 1000, "", ""},
		"3.1 reserved bit 1 in text":         {frame(final|rsv1|opText, "hello"), nil, 1002, "", ""},
		"3.2 reserved bit 2 after a message": {frames(frame(final|opText, "a"), frame(final|0x20|opText, "b")), nil, 1002, "", ""},
		"4.1.1 opcode 3":                     {frame(final|3, ""), nil, 1002, "", ""},
		"4.2.1 opcode 11":                    {frame(final|11, ""), nil, 1002, "", ""},
		"5.1 fragmented ping":                {frames(frame(opPing, "a"), frame(final|opContinuation, "b")), nil, 1002, "", ""},
		"5.3 text in two fragments":          {frames(frame(opText, "frag"), frame(final|opContinuation, "ment"), bye), []string{"fragment"}, 1000, "", ""},
		"5.6 ping between fragments":         {frames(frame(opText, "frag"), frame(final|opPing, "p"), frame(final|opContinuation, "ment"), bye), []string{"pong p", "fragment"}, 1000, "", ""},
		"5.9 continuation of nothing":        {frames(frame(final|opContinuation, "x"), frame(final|opText, "a")), nil, 1002, "", ""},
		"5.18 text within a fragmented text": {frames(frame(opText, "a"), frame(final|opText, "b")), nil, 1002, "", ""},
		"6.1.2 text":                         {frames(frame(final|opText, "ä"), bye), []string{"ä"}, 1000, "", ""},
		"6.2.3 character in two fragments":   {frames(frame(opText, "\xce"), frame(final|opContinuation, "\xba"), bye), []string{"κ"}, 1000, "", ""},
		"6.3.1 invalid UTF-8":                {frame(final|opText, "\xce\xba\xed\xa0\x80edited"), nil, 1007, "", ""},
		"6.4.1 invalid UTF-8 in fragments":   {frames(frame(opText, "\xce\xba"), frame(final|opContinuation, "\xf4\x90\x80\x80")), nil, 1007, "", ""},
		"6.6.1 half a character":             {frame(final|opText, "\xce"), nil, 1007, "", ""},
		"6.9 binary that is no UTF-8":        {frames(frame(final|opBinary, "\xff\xfe"), bye), []string{"\xff\xfe"}, 1000, "", ""},
		"7.1.1 message, then close":          {frames(frame(final|opText, "a"), bye), []string{"a"}, 1000, "", ""},
		"7.1.3 ping after close":             {frames(bye, frame(final|opPing, "")), nil, 1000, "", ""},
		"7.3.1 close without a code":         {frame(final|opClose, ""), nil, 1005, "", ""},
		"7.3.2 close with half a code":       {frame(final|opClose, "\x03"), nil, 1002, "", ""},
		"7.7.9 close with 3000":              {frame(final|opClose, status(3000, "")), nil, 3000, "", ""},
		"7.9.1 close with 0":                 {frame(final|opClose, status(0, "")), nil, 1002, "", ""},
		"7.9.5 close with 1005":              {frame(final|opClose, status(1005, "")), nil, 1002, "", ""},
		"9.1 larger than the route takes":    {frame(final|opText, strings.Repeat("x", 1<<20+1)), nil, 1009, "", ""},
		"unmasked frame":                     {unmasked(final|opText, "hello"), nil, 1002, "", ""},
		"12.1 compressed message": {
			frames(frame(final|rsv1|opText, deflated(strings.Repeat("hello", 1000))), bye),
			[]string{strings.Repeat("hello", 1000)},
			1000,
			"Sec-WebSocket-Extensions: permessage-deflate", "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
		},
		"12.2 compressed beyond the limit": {
			frame(final|rsv1|opText, deflated(strings.Repeat("hello", 1<<20))), nil, 1009,
			"Sec-WebSocket-Extensions: permessage-deflate", "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
		},
		"13.3 server's largest window": {
			bye, nil, 1000, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits; server_max_window_bits=15",
			"permessage-deflate; client_no_context_takeover; server_no_context_takeover; server_max_window_bits=15",
		},
		"13.4 server's smaller window": {bye, nil, 1000, "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9", ""},
		"13.5 smaller window, then the largest": {
			bye, nil, 1000, "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9, permessage-deflate;server_max_window_bits=15",
			"permessage-deflate; client_no_context_takeover; server_no_context_takeover; server_max_window_bits=15",
		},
		"13.6 no window, then the largest": {
			bye, nil, 1000, "Sec-WebSocket-Extensions: x-other; y\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=9, permessage-deflate; server_max_window_bits=15",
			"permessage-deflate; client_no_context_takeover; server_no_context_takeover",
		},
		"subprotocol":         {bye, nil, 1000, "Sec-WebSocket-Protocol: v0.chat, v1.chat", "v1.chat"},
		"unknown subprotocol": {bye, nil, 1000, "Sec-WebSocket-Protocol: v0.chat", ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
			offer := c.offers
			if offer != "" {
				offer += "\r\n"
			}
			fmt.Fprintf(conn, "GET /chat/ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n%s\r\n",
				base64.StdEncoding.EncodeToString(make([]byte, 16)), offer)
			in := bufio.NewReader(conn)
			r, err := http.ReadResponse(in, nil) //nolint:bodyclose // the connection is its body
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Header.Get("Sec-WebSocket-Extensions") + r.Header.Get("Sec-WebSocket-Protocol"); r.StatusCode != 101 || got != c.accepts {
				t.Fatalf("status %d, %q is accepted, want %q", r.StatusCode, got, c.accepts)
			}
			// The close frame is answered at once, so a client that wants all answers waits for them.
			closes := bytes.HasSuffix(c.sent, bye)
			if _, err := conn.Write(bytes.TrimSuffix(c.sent, bye)); err != nil {
				t.Fatal(err)
			}
			var answers []string
			if closes {
				answers, _ = received(t, in, len(c.answers))
				if _, err := conn.Write(bye); err != nil {
					t.Fatal(err)
				}
			}
			more, code := received(t, in, 99)
			answers = append(answers, more...)
			if code != c.code {
				t.Errorf("closed with %d, want %d", code, c.code)
			}
			if closes && fmt.Sprint(answers) != fmt.Sprint(c.answers) {
				t.Errorf("got %.100q, want %.100q", answers, c.answers)
			}
		})
	}
}

// TestQueuedMessagesAreWeighed: the messages that wait for a slow function take a bounded
// number of bytes, however many clients send.
func TestQueuedMessagesAreWeighed(t *testing.T) {
	const limit, size, clients = 8 << 20, 1 << 20, 6
	release := make(chan struct{})
	slow := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		if event, _ := c.Meta("ws.event"); event == "message" {
			<-release
		}
		return gateway.Answer{}, nil
	})
	g := newGateway(t, gateway.Options{Invoker: slow, Buffers: quota.NewBudget(quota.Requests, limit)}, gateway.App{Name: "chat", Routes: []gateway.Route{
		{Path: "/", WebSocket: true, Target: to("f"), MaxBody: 2 * size},
	}})
	start(t, g)
	addr := serve(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := make(chan int, clients)
	for range clients {
		c := dial(t, addr, "/chat/")
		c.SetReadLimit(-1)
		go func() {
			message, n := bytes.Repeat([]byte("x"), size), 0
			for n < 64 && c.Write(ctx, 1, message) == nil {
				n++
			}
			sent <- n
		}()
	}
	most := int64(0)
	for done := 0; done < clients; {
		select {
		case <-sent:
			done++
		case <-time.After(time.Millisecond):
		}
		if most < size && gateway.Buffered(g) >= size {
			time.AfterFunc(time.Second, cancel) // the clients send on in the meantime
		}
		most = max(most, gateway.Buffered(g))
	}
	if most > limit || most < size {
		t.Errorf("at most %d bytes were held, the limit is %d", most, limit)
	}
	close(release)
}

// TestBodiesAreWeighed: the bodies of requests that are in progress take a bounded number of
// bytes; more are refused, and what is over frees them. Buffers that earlier requests have left
// count like new ones.
func TestBodiesAreWeighed(t *testing.T) {
	const limit = 4 << 20
	calls := make(chan chan<- struct{}, 16)
	slow := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
		release := make(chan struct{})
		calls <- release
		<-release
		return text("done"), nil
	})
	g := newGateway(t, gateway.Options{Invoker: slow, Buffers: quota.NewBudget(quota.Requests, limit)}, shop(gateway.Route{Path: "/", Target: to("f")}))
	start(t, g)
	url := "http://" + serve(t, g) + "/shop/"
	for _, size := range []int{1 << 20, 512 << 10, 512 << 10, 512 << 10} {
		weighBodies(t, g, url, size, limit, calls)
	}
}

// weighBodies sends 16 bodies of a size, and ends the calls when each is refused or in progress.
func weighBodies(t *testing.T, g *gateway.Gateway, url string, size, limit int, calls <-chan chan<- struct{}) {
	t.Helper()
	results := make(chan int, 16)
	for range 16 {
		go func() {
			r, err := http.Post(url, "", bytes.NewReader(make([]byte, size)))
			if err != nil {
				results <- 0
				return
			}
			r.Body.Close()
			results <- r.StatusCode
		}()
	}
	var accepted []chan<- struct{}
	for refused := 0; refused+len(accepted) < 16; {
		select {
		case code := <-results:
			if code != http.StatusTooManyRequests && code != 0 { // a client that still sends may see a reset
				t.Errorf("status %d", code)
			}
			refused++
		case release := <-calls:
			accepted = append(accepted, release)
		}
	}
	if held, n := gateway.Buffered(g), len(accepted); held > int64(limit) || n == 0 || n > limit/size {
		t.Errorf("%d requests of %d bytes hold %d bytes", n, size, held)
	}
	for _, release := range accepted {
		close(release)
	}
	for range accepted {
		if code := <-results; code != http.StatusOK {
			t.Errorf("status %d", code)
		}
	}
	for limit := time.Now().Add(2 * time.Minute); gateway.Buffered(g) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d bytes are still held", gateway.Buffered(g))
		}
	}
}

// TestHosts: requests for other host names than those that are allowed are refused, on every
// way of a request.
func TestHosts(t *testing.T) {
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("done"), nil })
	g := newGateway(t, gateway.Options{Invoker: f, Tenant: "tea", Hosts: []string{"localhost", "127.0.0.1", "[::1]", "*.localhost", "shop.example"}}, shop(gateway.Route{Path: "/", Target: to("f")}))
	start(t, g)
	addr := serve(t, g)
	for host, want := range map[string]int{
		"localhost": 200, "LocalHost:8080": 200, "127.0.0.1:1": 200, "[::1]:80": 200, "[::1]": 200, "tea.localhost": 200, "Tea.localhost:8080": 200, "coffee.localhost": 421, "x.tea.localhost": 421, "shop.example": 200,
		"localhost.": 200, "evil.example": 421, "localhost.evil.example": 421, "xlocalhost": 421, "evil.example:8080": 421, ".localhost": 421,
		"127.0.0.1.evil.example": 421, "10.0.0.1": 421,
	} {
		for _, framing := range []string{"Content-Length: 1\r\n\r\na", "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST /shop/ HTTP/1.1\r\nHost: %s\r\n%s", host, framing)
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.StatusCode != want {
				t.Errorf("%s: status %d, want %d", host, r.StatusCode, want)
			}
			_ = errors.Join(r.Body.Close(), conn.Close())
		}
	}
}

// Where every host name is served, TENANT.localhost serves only that tenant's apps all the same.
func TestHostsOfTenants(t *testing.T) {
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("done"), nil })
	g := newGateway(t, gateway.Options{Invoker: f, Tenant: "tea"}, shop(gateway.Route{Path: "/", Target: to("f")}))
	for host, want := range map[string]int{
		"shop.example": 200, "localhost": 200, "10.0.0.1:8080": 200, "tea.localhost": 200, "Tea.LocalHost.:8080": 200,
		"coffee.localhost": 421, "Coffee.Localhost:8080": 421, "x.tea.localhost": 421, "coffee.localhost.": 421,
	} {
		r := get("/shop/")
		r.Host = host
		if got := ask(g, r); got.StatusCode != want {
			t.Errorf("%s: status %d, want %d", host, got.StatusCode, want)
		}
	}
}

// TestBareRequest: a request without a body says nothing of its length, and what is too large
// names the key of the manifest.
func TestBareRequest(t *testing.T) {
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		return gateway.Answer{Body: fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n\r\n%v", bytes.Contains(c.Body, []byte("Content-Length"))), Message: true}, nil
	})
	g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f"), HTTP: true, MaxBody: 10}))
	if got := ask(g, get("/shop/")); got.text != "false" {
		t.Errorf("GET: got %q", got.text)
	}
	if got := ask(g, post("/shop/", "x")); got.text != "true" {
		t.Errorf("POST: got %q", got.text)
	}
	if got := ask(g, post("/shop/", "more than that")); got.StatusCode != 413 || !strings.Contains(got.text, "`request`") {
		t.Errorf("got %v", got)
	}
}

// TestMachineErrors: errors of the machine's files are no failures of the function, and their
// paths are not the client's to know.
func TestMachineErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int
	}{
		"disk full":  {fmt.Errorf("save: %w", &os.PathError{Op: "write", Path: "/var/lib/outboard/x", Err: syscall.ENOSPC}), 507},
		"quota":      {&os.LinkError{Op: "link", Old: "/var/lib/outboard/x", New: "/var/lib/outboard/y", Err: syscall.EDQUOT}, 507},
		"disk fails": {&os.PathError{Op: "read", Path: "/var/lib/outboard/x", Err: syscall.EIO}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return gateway.Answer{}, c.err })
			g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f")}))
			if got := ask(g, get("/shop/")); got.StatusCode != c.code || strings.Contains(got.text, "/var/lib") {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestTrailers: the trailers of a chunked response reach the client, on both servers, but for
// fields that have no meaning there.
func TestTrailers(t *testing.T) {
	message := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nGrpc-Status: 7\r\nContent-Length: 9\r\nX-Sum: a\r\nX-Sum: b\r\n\r\n"
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
		return gateway.Answer{Body: []byte(message), Message: true}, nil
	})
	g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f"), HTTP: true}))
	start(t, g)
	addr := serve(t, g)
	for name, framing := range map[string]string{
		"plain": "Content-Length: 1\r\n\r\na", "net/http": "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			for range 2 { // the connection goes on
				fmt.Fprintf(conn, "POST /shop/ HTTP/1.1\r\nHost: x\r\n%s", framing)
				r, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := read(t, r); got.text != "hello" || fmt.Sprint(r.Trailer) != "map[Grpc-Status:[7] X-Sum:[a b]]" {
					t.Errorf("%s: got %q with the trailers %v", name, got.text, r.Trailer)
				}
			}
		})
	}
}
