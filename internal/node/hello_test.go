package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/netconn"
)

// clientHello is what a client begins a handshake with.
func clientHello(t testing.TB, protocols ...string) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It fails: nobody answers.
		_ = tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}).HandshakeContext(context.Background())
	}()
	buf := make([]byte, 16<<10)
	n, err := ours.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	<-done
	return buf[:n]
}

// fakeConn is a connection from which a text can be read once.
type fakeConn struct {
	io.Reader
	net.Conn
}

func (c fakeConn) Read(b []byte) (int, error)      { return c.Reader.Read(b) }
func (c fakeConn) SetReadDeadline(time.Time) error { return nil }
func (c fakeConn) Write(b []byte) (int, error)     { panic("peek wrote to the peer") }

func TestPeek(t *testing.T) {
	hello := clientHello(t, "outboard/1", "h2")
	rest := []byte("what follows")
	nc := fakeConn{Reader: bytes.NewReader(append(bytes.Clone(hello), rest...))}
	offered, read, err := peek(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"outboard/1", "h2"}, offered); diff != "" {
		t.Errorf("protocols (-want +got):\n%s", diff)
	}
	all, err := io.ReadAll(netconn.Prefix(nc, read))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(hello, rest...), all); diff != "" {
		t.Errorf("the handshake cannot begin anew (-want +got):\n%s", diff)
	}
}

func FuzzPeek(f *testing.F) {
	f.Add(clientHello(f, "outboard/1"))
	f.Add(clientHello(f))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		nc := fakeConn{Reader: bytes.NewReader(b)}
		_, read, err := peek(t.Context(), nc)
		if err != nil {
			return
		}
		all, err := io.ReadAll(netconn.Prefix(nc, read))
		if err != nil || !bytes.Equal(all, b) {
			t.Errorf("got %d bytes, %v, want the %d that came", len(all), err, len(b))
		}
	})
}
