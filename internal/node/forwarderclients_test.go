package node

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"
)

// A client that begins with HTTP/2 is told to use HTTP/1.1 where requests are forwarded, too.
func TestForwarderRefusesHTTP2(t *testing.T) {
	front := httptest.NewServer(&forwarder{log: slog.New(slog.DiscardHandler)})
	t.Cleanup(front.Close)
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	frames := make([]byte, 26)
	if _, err := io.ReadFull(conn, frames); err != nil || frames[3] != 4 || frames[12] != 7 || frames[25] != 0xd {
		t.Errorf("got %q, %v, want SETTINGS and GOAWAY", frames, err)
	}
}

// frontOf returns the address of a forwarder to a tenant's process.
func frontOf(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	process := httptest.NewServer(handler)
	t.Cleanup(process.Close)
	f := &forwarder{log: slog.New(slog.DiscardHandler), server: &http.Server{}, tenantRequests: 10}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, process.Listener.Addr().String())
		},
		ExpectContinueTimeout: time.Minute, // as of host.Host
	}
	t.Cleanup(transport.CloseIdleConnections)
	f.proxies = map[string]*httputil.ReverseProxy{"tea": f.newProxy("tea", transport)}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.forwardTo("tea", w, r) }))
	t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

// A response that a tenant's process sends before it has read the body is forwarded at once. If the process
// keeps its connection the client's connection serves the next request.
func TestResponseBeforeTheBody(t *testing.T) {
	addr := frontOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, "next")
		case r.URL.Path == "/refused":
			w.Header().Set("Connection", "close")
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		default:
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusAccepted)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body)
		}
	})
	for name, c := range map[string]struct {
		head   string
		status int
		close  bool
	}{
		"accepted":           {"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", http.StatusAccepted, false},
		"refused":            {"PUT /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", http.StatusRequestEntityTooLarge, true},
		"refused, expecting": {"PUT /refused HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n", http.StatusRequestEntityTooLarge, true},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute)) // without a response
			in := bufio.NewReader(conn)
			exchange := func(request string) (status int, body string, closes bool) {
				t.Helper()
				if _, err := io.WriteString(conn, request); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, string(text), resp.Close
			}
			status, _, closes := exchange(c.head)
			if status != c.status || closes != c.close {
				t.Fatalf("got %d, close %v", status, closes)
			}
			if closes {
				return
			}
			next := strings.Repeat("x", 1_000_000) + "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
			for range 2 {
				if status, body, _ := exchange(next); body != "next" {
					t.Errorf("the next request: %d, %q", status, body)
				}
				next = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
			}
		})
	}
}

// A client that expects 100 Continue gets it once, when the process reads the body, although the
// process sends a second one.
func TestForwardContinue(t *testing.T) {
	addr := frontOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusContinue)
		_, _ = w.Write(body)
	})
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, "PUT /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	want := "HTTP/1.1 100 Continue\r\n\r\n"
	first := make([]byte, len(want))
	if _, err := io.ReadFull(conn, first); err != nil || string(first) != want {
		t.Fatalf("got %q, %v", first, err)
	}
	if _, err := io.WriteString(conn, "tea"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 200 OK") || !strings.HasSuffix(string(rest), "tea") {
		t.Errorf("got %q, %v", rest, err)
	}
}
