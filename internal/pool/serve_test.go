package pool_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// A node without a copy that is asked for the state sends the peer on, and finds
// nothing wrong with it.
func TestAskingTheWrongNodeIsNoRefusal(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 0), newTestNode(t, "b", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	near, far := tcpPair(t)
	served := make(chan error, 1)
	go func() { served <- b.ServeConn(ctx, tls.Server(far, b.id.ServerTLS(state.Protocol))) }()
	answer, err := ask(ctx, tls.Client(near, a.id.AnyNodeTLS(state.Protocol)))
	if err != nil || answer != 0 {
		t.Errorf("got %d, %v, want the answer 0", answer, err)
	}
	if err := <-served; err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// tcpPair returns both sides of a connection.
func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}

// ask reads the byte that says whether the peer serves the state.
func ask(ctx context.Context, conn *tls.Conn) (byte, error) {
	defer conn.Close()
	if err := conn.HandshakeContext(ctx); err != nil {
		return 0, err
	}
	var answer [1]byte
	_, err := conn.Read(answer[:])
	return answer[0], err
}
