package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/gateway"
)

// A server ends the connection of a request with two lengths, and of no other.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })}
	done := make(chan error, 1)
	go func() { done <- gateway.Serve(server, l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	const length, chunks = "Content-Length: 2\r\n\r\nhi", "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
	for name, c := range map[string]struct {
		sent []string // requests, without their first lines
		want []bool   // the connection ends
	}{
		"in turn":           {[]string{length, chunks, length, length, chunks, "\r\n", chunks}, []bool{false, false, false, false, false, false, false}},
		"both":              {[]string{length, "Content-Length: 2\r\n" + chunks}, []bool{false, true}},
		"in the other case": {[]string{chunks, "X: y\r\ncOnTeNt-LeNgTh: 9\r\n" + chunks}, []bool{false, true}},
		"other fields":      {[]string{"X-Content-Length: 2\r\nA: Content-Length: 3\r\n" + chunks}, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			from := bufio.NewReader(conn)
			var closed []bool
			for _, rest := range c.sent {
				if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+rest); err != nil {
					t.Fatal(err)
				}
				r, err := http.ReadResponse(from, nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = r.Body.Close()
				closed = append(closed, r.Close)
			}
			if diff := cmp.Diff(c.want, closed); diff != "" {
				t.Errorf("want (-) got (+):\n%s", diff)
			}
		})
	}
}
