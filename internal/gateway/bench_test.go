package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/gateway"
)

// sink takes an answer as net/http's connection does, without its costs.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

// SetReadDeadline is what the connection has.
func (s *sink) SetReadDeadline(time.Time) error { return nil }

var message = []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request: 7\r\nContent-Length: 17\r\n\r\n{\"hello\":\"world\"}")

// benchApp has a route for each kind, and an invoker that costs nothing.
func benchApp(b *testing.B) *gateway.Gateway {
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		return gateway.Answer{Body: message, Message: c.HTTP}, nil
	})
	return newGateway(b, gateway.Options{Invoker: f, Metrics: prometheus.NewRegistry()}, shop(
		gateway.Route{Path: "/http/{id}", Target: to("f"), HTTP: true}, gateway.Route{Path: "/plain", Target: to("f")},
	))
}

func native(w http.ResponseWriter, r *http.Request) {
	_, _ = io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request", "7")
	_, _ = w.Write([]byte("{\"hello\":\"world\"}"))
}

// BenchmarkServeHTTP is what the gateway adds to a request, beside a handler that does
// the same.
func BenchmarkServeHTTP(b *testing.B) {
	mux := http.NewServeMux()
	mux.HandleFunc("/shop/http/{id}", native)
	mux.HandleFunc("/shop/plain", native)
	for name, c := range map[string]struct {
		h    http.Handler
		path string
	}{
		"native": {mux, "/shop/http/7"}, "message": {benchApp(b), "/shop/http/7"}, "plain": {benchApp(b), "/shop/plain"},
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodPost, c.path, nil)
			r.Header = http.Header{"User-Agent": {"bench"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}}
			body := strings.NewReader("{}")
			r.Body, r.ContentLength = io.NopCloser(body), 2
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				body.Reset("{}")
				clear(w.header)
				c.h.ServeHTTP(w, r)
			}
			if w.status != 0 && w.status != http.StatusOK {
				b.Fatalf("status %d", w.status)
			}
		})
	}
}

// BenchmarkRequests is whole requests over connections, by the gateway and by net/http
// itself with a native handler.
func BenchmarkRequests(b *testing.B) {
	for _, name := range []string{"native", "message", "native again", "message again"} {
		b.Run(name, func(b *testing.B) {
			var addr string
			if strings.HasPrefix(name, "native") {
				mux := http.NewServeMux()
				mux.HandleFunc("/shop/http/{id}", native)
				s := httptest.NewServer(mux)
				defer s.Close()
				addr = s.Listener.Addr().String()
			} else {
				g := benchApp(b)
				defer start(b, g)()
				addr = serve(b, g)
			}
			b.SetParallelism(4)
			before := processTime(b)
			b.RunParallel(func(p *testing.PB) { requests(b, addr, p) })
			// Of client and server together. It varies less than the time.
			b.ReportMetric(float64((processTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

func processTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// requests asks on one connection until the benchmark is over.
func requests(b *testing.B, addr string, p *testing.PB) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Error(err)
		return
	}
	defer conn.Close()
	from := bufio.NewReader(conn)
	request := []byte("POST /shop/http/7 HTTP/1.1\r\nHost: x\r\nUser-Agent: bench\r\nAccept: */*\r\nContent-Length: 2\r\n\r\n{}")
	for p.Next() {
		if _, err := conn.Write(request); err != nil {
			b.Error(err)
			return
		}
		if err := readAnswer(from); err != nil {
			b.Error(err)
			return
		}
	}
}

// readAnswer reads an answer that ends with a brace.
func readAnswer(from *bufio.Reader) error {
	line, err := from.ReadString('}')
	if err == nil && !strings.HasPrefix(line, "HTTP/1.1 200") {
		return fmt.Errorf("got %q", line)
	}
	return err
}
