package netconn

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// The prefix is read first, in parts as small as the reader wants, then the connection.
func TestPrefix(t *testing.T) {
	near, far := net.Pipe()
	go func() {
		_, _ = far.Write([]byte("sent"))
		_ = far.Close()
	}()
	nc := Prefix(near, []byte("read"))
	part := make([]byte, 3)
	if n, err := nc.Read(part); string(part[:n]) != "rea" || err != nil {
		t.Errorf("the first part is %q, %v", part[:n], err)
	}
	if rest, err := io.ReadAll(nc); string(rest) != "dsent" || err != nil {
		t.Errorf("the rest is %q, %v", rest, err)
	}
}

func TestLowest(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for name, nc := range map[string]net.Conn{
		"itself":       near,
		"prefixed":     Prefix(near, nil),
		"TLS":          tls.Server(near, &tls.Config{MinVersion: tls.VersionTLS13}),
		"prefixed TLS": Prefix(tls.Client(Prefix(near, nil), &tls.Config{MinVersion: tls.VersionTLS13}), nil),
	} {
		if got := Lowest(nc); got != near {
			t.Errorf("%s: got %T", name, got)
		}
	}
}
