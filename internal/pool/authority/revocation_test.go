package authority_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// TestRevokeClosesOpened removes a node to which this one has a connection open: it is closed, the
// one to another node is not, and a new one is refused.
func TestRevokeClosesOpened(t *testing.T) {
	_, nodes := testPool(t, "a", "b", "c")
	a, b, c := nodes[0], nodes[1], nodes[2]
	toB, toC := tcpConn(t), tcpConn(t)
	for _, x := range []struct {
		to   *authority.Identity
		conn net.Conn
	}{{b, toB}, {c, toC}} {
		if err := authority.CloseOnRevoke(a, x.to.Fingerprint(), x.conn); err != nil {
			t.Fatal(err)
		}
	}
	a.Revoke(b.Fingerprint())
	if _, err := toB.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection to the removed node: %v, want that it is closed", err)
	}
	if _, err := toC.Write([]byte{1}); err != nil {
		t.Errorf("the connection to another node: %v", err)
	}
	if err := authority.CloseOnRevoke(a, b.Fingerprint(), tcpConn(t)); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("a new connection to the removed node: %v, want Denied", err)
	}
}

// TestUnrecordedConnsAreRefused connects over a connection that a removal could not close, below a
// wrapper that hides a TCP connection and one that does not.
func TestUnrecordedConnsAreRefused(t *testing.T) {
	_, nodes := testPool(t, "a", "b")
	a, b := nodes[0], nodes[1]
	for name, c := range map[string]struct {
		wrap func(net.Conn) net.Conn
		ok   bool
	}{
		"TCP":             {func(c net.Conn) net.Conn { return c }, true},
		"wrapped":         {func(c net.Conn) net.Conn { return &wrapped{hidden{c}, c} }, true},
		"wrapped, hidden": {func(c net.Conn) net.Conn { return hidden{c} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := tcpPair(t)
			_, err := handshakeOver(t, ours, c.wrap(theirs), b.ClientTLS("a", ""), a.ServerTLS())
			if (err == nil) != c.ok {
				t.Errorf("the server's error is %v", err)
			}
		})
	}
}

type hidden struct{ net.Conn }

type wrapped struct {
	hidden
	inner net.Conn
}

func (w *wrapped) NetConn() net.Conn { return w.inner }

// tcpConn returns the client's side of a connection.
func tcpConn(t *testing.T) net.Conn {
	t.Helper()
	conn, _ := tcpPair(t)
	return conn
}

// tcpPair returns both sides of a connection, the client's first.
func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn, server
}
