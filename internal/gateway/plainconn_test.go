package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/gateway"
)

// open opens a connection to a gateway without a network.
func open(g *gateway.Gateway) net.Conn {
	client, server := net.Pipe()
	g.ServeConn(server, nil)
	return client
}

// exchange writes to a connection and reads one answer.
func exchange(t *testing.T, conn net.Conn, sent string) answer {
	t.Helper()
	go func() { _, _ = io.WriteString(conn, sent) }()
	return nextAnswer(t, bufio.NewReader(conn))
}

func nextAnswer(t *testing.T, from *bufio.Reader) answer {
	t.Helper()
	r, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, r)
}

const plainGet = "GET /shop/ HTTP/1.1\r\nHost: x\r\n\r\n"

// TestRaw sends requests as bytes. A message that can be read in two ways gets one answer, and
// ends its connection.
func TestRaw(t *testing.T) {
	const host = "Host: x\r\n"
	hidden := "GET /shop/a/hidden/c HTTP/1.1\r\n" + host + "\r\n"
	for name, c := range map[string]struct {
		sent string
		want []int
		seen int // calls
	}{
		"pipelined":           {plainGet + plainGet + "POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\nhi" + plainGet, []int{200, 200, 200, 200}, 4},
		"then odd":            {plainGet + "POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n" + plainGet, []int{200, 200, 200}, 3},
		"no request":          {"hello\r\n\r\n", []int{400}, 0},
		"then no request":     {plainGet + "hello\r\n\r\n" + hidden, []int{200, 400}, 1},
		"huge head":           {plainGet + "GET /shop/ HTTP/1.1\r\n" + host + "A: " + strings.Repeat("x", 128<<10), []int{200, 431}, 1},
		"huge line":           {plainGet + "GET /shop/" + strings.Repeat("x", 128<<10), []int{200, 431}, 1},
		"large head":          {"GET /shop/ HTTP/1.1\r\n" + host + "A: " + strings.Repeat("x", 32<<10) + "\r\n\r\n" + plainGet, []int{200, 200}, 2},
		"many fields":         {"GET /shop/ HTTP/1.1\r\n" + host + strings.Repeat("A: x\r\n", 100) + "\r\n" + plainGet, []int{200, 200}, 2},
		"lengths that differ": {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + hidden, []int{400}, 0},
		"lengths in a list":   {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 0, 44\r\n\r\n" + hidden, []int{400}, 0},
		"signed length":       {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: +0\r\n\r\n" + hidden, []int{400}, 0},
		"length and chunks":   {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, []int{200}, 1}, // chunks count, and the connection ends: RFC 9112, sections 6.1 and 6.3
		"chunks after blank":  {"POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden, []int{400}, 0},
		"two codings":         {"POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden, []int{501}, 0},
		"other coding":        {"POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden, []int{501}, 0},
		"folded coding":       {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + hidden, []int{200}, 1},
		"chunk size":          {"POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + hidden, []int{400}, 0},
		"chunk overflow":      {"POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n" + hidden, []int{400}, 0},
		"chunk's end":         {"POST /shop/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n" + hidden, []int{400}, 0},
		"body cut off":        {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\nhello", []int{400}, 0},
		"body too large":      {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 101\r\n\r\n" + strings.Repeat("x", 101) + hidden, []int{413}, 0},
		"announced too large": {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 100000000\r\n\r\n" + hidden, []int{413}, 0},
		"no host":             {"GET /shop/ HTTP/1.1\r\n\r\n" + hidden, []int{400}, 0},
		"two hosts":           {"GET /shop/ HTTP/1.1\r\n" + host + host + "\r\n" + hidden, []int{400}, 0},
		"bare line feeds":     {"GET /shop/ HTTP/1.1\n" + "Host: x\n\n" + plainGet, []int{200, 200}, 2},
		"nul":                 {"GET /shop/ HTTP/1.1\r\n" + host + "A: \x00\r\n\r\n" + hidden, []int{400}, 0},
		"close":               {"GET /shop/ HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n" + hidden, []int{200}, 1},
		"old":                 {"GET /shop/ HTTP/1.0\r\n\r\n" + hidden, []int{200}, 1},
		"expects":             {"POST /shop/ HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi" + plainGet, []int{100, 200, 200}, 2},
		"expects other":       {"POST /shop/ HTTP/1.1\r\n" + host + "Expect: more\r\nContent-Length: 2\r\n\r\nhi" + plainGet, []int{417}, 0},
		"head":                {"HEAD /shop/ HTTP/1.1\r\n" + host + "\r\n" + plainGet, []int{200, 200}, 2},
		"head of a problem":   {"HEAD /shop/live HTTP/1.1\r\n" + host + "\r\n" + plainGet, []int{426, 200}, 1},
		"lines after a post":  {"POST /shop/ HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\nhi\r\n\r\n" + plainGet, []int{200, 200}, 2},
		"lines after a get":   {plainGet + "\r\n" + hidden, []int{200, 400}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, calls := recordingApp(t, gateway.Options{})
			start(t, g)
			conn := newScripted([]byte(c.sent), nil)
			g.ServeConn(conn, nil)
			<-conn.closed
			var got []int
			for _, a := range conn.answersTo(t, []byte(c.sent)) {
				got = append(got, a.Status)
			}
			if diff := cmp.Diff(got, c.want); diff != "" || len(calls()) != c.seen {
				t.Errorf("%d calls, want %d; answers: %s", len(calls()), c.seen, diff)
			}
			for _, s := range calls() {
				if strings.Contains(s.Path, "hidden") {
					t.Errorf("a body was taken for a request: %v", s)
				}
			}
		})
	}
}

// TestPlainStays: a connection is left to net/http at its first odd request and not before.
func TestPlainStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := recordingApp(t, gateway.Options{})
		stop := start(t, g)
		conn := open(g)
		for _, c := range []struct {
			sent          string
			status, plain int
		}{
			{plainGet, 200, 1},
			{"POST /shop/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", 200, 1},
			{"GET /shop/http HTTP/1.1\r\nHost: x\r\n\r\n", 203, 1},
			{"GET /shop HTTP/1.1\r\nHost: x\r\n\r\n", 307, 1}, // to /shop/
			{"GET /shop/live HTTP/1.1\r\nHost: x\r\n\r\n", 426, 1},
			{"GET /other/ HTTP/1.1\r\nHost: x\r\n\r\n", 404, 0},
			{plainGet, 200, 0},
		} {
			a := exchange(t, conn, c.sent)
			if n := gateway.PlainConns(g); a.StatusCode != c.status || n != c.plain {
				t.Errorf("%q: got %d, want %d; %d connections are plain, want %d", c.sent, a.StatusCode, c.status, n, c.plain)
			}
			if a.StatusCode == http.StatusUpgradeRequired && a.Header.Get("Upgrade") != "websocket" {
				t.Errorf("Upgrade: %q", a.Header.Get("Upgrade"))
			}
			if a.Header.Get("Date") == "" {
				t.Error("no date")
			}
		}
		conn.Close()
		stop()
	})
}

// TestPieces: a request that comes byte by byte, but soon, is served; so is one of which
// the body comes later than the head.
func TestPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, calls := recordingApp(t, gateway.Options{})
		stop := start(t, g)
		conn := open(g)
		from := bufio.NewReader(conn)
		sent := "POST /shop/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
		for range 3 {
			for i := range len(sent) {
				if _, err := conn.Write([]byte{sent[i]}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			if a := nextAnswer(t, from); a.StatusCode != 200 || gateway.PlainConns(g) != 1 {
				t.Errorf("got %v, %d connections are plain", a, gateway.PlainConns(g))
			}
			time.Sleep(time.Minute)
		}
		for _, s := range calls() {
			if s.Body != "hello" {
				t.Errorf("got %q", s.Body)
			}
		}
		conn.Close()
		stop()
	})
}

// TestSlowLoris: a client that sends a byte now and then is let go, wherever it is in its
// request, and before that leaves the connection to net/http's time limits.
func TestSlowLoris(t *testing.T) {
	for name, before := range map[string]string{"first": "", "later": plainGet} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _ := recordingApp(t, gateway.Options{ClientTimeout: 10 * time.Second})
				stop := start(t, g)
				conn := open(g)
				if before != "" {
					exchange(t, conn, before)
				}
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				begin := time.Now()
				_, err := io.WriteString(conn, "GET /shop/ HTTP/1.1\r\nHost: x\r\nA: ")
				for err == nil {
					time.Sleep(500 * time.Millisecond)
					_, err = io.WriteString(conn, "x")
				}
				if took := time.Since(begin); took > 16*time.Second {
					t.Errorf("it was let go after %v", took)
				}
				stop()
			})
		})
	}
}

// TestIdle: a connection on which nothing comes any more ends.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := recordingApp(t, gateway.Options{})
		stop := start(t, g)
		conn := open(g)
		exchange(t, conn, plainGet)
		begin := time.Now()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if took := time.Since(begin); took < time.Minute || took > 3*time.Minute {
			t.Errorf("it ended after %v", took)
		}
		stop()
	})
}

// waiting is an app whose calls take until something happens.
func waiting(t *testing.T, until <-chan struct{}, gone *atomic.Int64) *gateway.Gateway {
	return newGateway(t, gateway.Options{Invoker: invoke(func(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
		select {
		case <-until:
			return text("done " + string(c.Body)), nil
		case <-ctx.Done():
			gone.Add(1)
			return gateway.Answer{}, context.Cause(ctx)
		}
	})}, shop(gateway.Route{Path: "/", Target: to("f")}))
}

// TestClientLeaves: the call of a client that leaves ends soon.
func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Int64
		g := waiting(t, nil, &gone)
		stop := start(t, g)
		for range 3 {
			conn := open(g)
			if _, err := io.WriteString(conn, plainGet); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(gone.Load()) * 70 * time.Millisecond) // before and after the server listens
			before := gone.Load()
			conn.Close()
			time.Sleep(200 * time.Millisecond)
			if gone.Load() != before+1 {
				t.Error("the call goes on")
			}
		}
		stop()
	})
}

// TestNextDuringCall: what comes during a long call is the next request.
func TestNextDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Int64
		finish := make(chan struct{})
		g := waiting(t, finish, &gone)
		stop := start(t, g)
		conn := open(g)
		from := bufio.NewReader(conn)
		post := func(body string) string {
			return "POST /shop/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n" + body
		}
		if _, err := io.WriteString(conn, post("1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		go func() { _, _ = io.WriteString(conn, post("2")+post("3")) }()
		time.Sleep(time.Second)
		close(finish)
		for _, want := range []string{"done 1", "done 2", "done 3"} {
			if a := nextAnswer(t, from); a.text != want {
				t.Errorf("got %q, want %q", a.text, want)
			}
		}
		if gateway.PlainConns(g) != 1 || gone.Load() != 0 {
			t.Errorf("%d connections, %d calls were given up", gateway.PlainConns(g), gone.Load())
		}
		conn.Close()
		stop()
	})
}

// TestPlainStops: when the gateway stops, connections without a request end at once, what
// began is answered, and the connection ends with it.
func TestPlainStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Int64
		finish := make(chan struct{})
		g := waiting(t, finish, &gone)
		stop := start(t, g)
		idle, busy, half := open(g), open(g), open(g)
		for conn, sent := range map[net.Conn]string{busy: plainGet, half: "POST /shop/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1"} {
			if _, err := io.WriteString(conn, sent); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		go stop()
		synctest.Wait()
		if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the idle connection: %v", err)
		}
		if _, err := io.WriteString(half, "2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		close(finish)
		for conn, want := range map[net.Conn]string{busy: "done ", half: "done 12"} {
			b, err := io.ReadAll(conn)
			if err != nil || !bytes.HasSuffix(b, []byte(want)) || !bytes.Contains(b, []byte("Connection: close\r\n")) {
				t.Errorf("got %q (%v), want %q", b, err, want)
			}
		}
		stop()
	})
}

// TestGivenUp: what takes longer than the grace is given up on plain connections, too.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Int64
		g := newGateway(t, gateway.Options{Grace: time.Second, Invoker: invoke(func(ctx context.Context, _ gateway.Call) (gateway.Answer, error) {
			<-ctx.Done()
			gone.Add(1)
			return gateway.Answer{}, context.Cause(ctx)
		})}, shop(gateway.Route{Path: "/", Target: to("f")}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx, func() {}) }()
		var conns []net.Conn
		for range 5 {
			conn := open(g)
			if _, err := io.WriteString(conn, plainGet); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		cancel()
		if err := <-ended; err == nil || gone.Load() != 5 {
			t.Errorf("%d calls were given up: %v", gone.Load(), err)
		}
		for _, conn := range conns {
			conn.Close()
		}
	})
}

// TestPanic: a request that panics ends its connection, and nothing else.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		if string(c.Body) == "boom" {
			panic("boom")
		}
		return text("x"), nil
	})
	g := newGateway(t, gateway.Options{Invoker: f, Calls: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}, shop(gateway.Route{Path: "/", Target: to("f")}))
	start(t, g)
	conn := open(g)
	if _, err := io.WriteString(conn, "POST /shop/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nboom"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); len(b) > 0 || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	if !strings.Contains(log.String(), "boom") {
		t.Errorf("the log has %q", &log)
	}
	other := open(g)
	if a := exchange(t, other, plainGet); a.StatusCode != 200 {
		t.Errorf("after a panic: %v", a)
	}
	other.Close()
}
