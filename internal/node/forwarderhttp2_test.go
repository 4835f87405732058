package node

import (
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"testing"
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
