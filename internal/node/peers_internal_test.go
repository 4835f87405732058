package node

import (
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/network"
)

// A joined node that was taken over, or a program with one of its certificates, opens connections
// without end and keeps them: other nodes are served all the same.
func TestConnectionsOfANodeAreBounded(t *testing.T) {
	t.Parallel()
	ca, err := authority.Found(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	identity := func(name outboard.NodeID) *authority.Identity {
		id, err := ca.NewIdentity(name, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := identity("harbour")
	s := &peerServer{
		listener: l, identity: own, refused: registerRefused(prometheus.NewRegistry()), known: acceptor.NewSlots(8), log: slog.New(slog.DiscardHandler),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.run(t.Context(), func() {})
	}()
	t.Cleanup(func() { <-ended })
	// served connects as a node, and reports whether its probes are answered.
	served := func(id *authority.Identity) bool {
		conn, err := tls.Dial("tcp", l.Addr().String(), id.ClientTLS("harbour", own.Fingerprint(), network.Protocol))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write(make([]byte, 16))
		if err == nil {
			_, err = conn.Read(make([]byte, 16))
		}
		return err == nil
	}
	bad, n := identity("bad"), 0
	for ; n < 8 && served(bad); n++ {
	}
	if n != 4 {
		t.Errorf("a node has %d of 8 connections", n)
	}
	if !served(identity("good")) {
		t.Error("another node is not served")
	}
}
