package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/network"
)

// A node of another version logs each probe that it refuses: it is not probed again for a while.
func TestProbesOfOtherVersions(t *testing.T) {
	t.Parallel()
	ca, err := authority.Found(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	newIdentity := func(name outboard.NodeID) *authority.Identity {
		id, err := ca.NewIdentity(name, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	old := newIdentity("old")
	l, err := tls.Listen("tcp", "127.0.0.1:0", old.ServerTLS("outboard-probe/1"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var served atomic.Int32
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			served.Add(1)
			_ = conn.(*tls.Conn).HandshakeContext(context.Background())
			_ = conn.Close()
		}
	}()
	paths := &probePaths{
		identity: newIdentity("new"), conns: make(map[outboard.NodeID]*probeConn), refused: make(map[outboard.NodeID]time.Time),
	}
	peer := network.Peer{ID: "old", Addr: l.Addr().String(), Fingerprint: old.Fingerprint()}
	if _, err := paths.probe(t.Context(), peer, 1000); err == nil || errors.Is(err, errProbesRefused) {
		t.Fatalf("the first probe: %v", err)
	}
	if _, err := paths.probe(t.Context(), peer, 1000); !errors.Is(err, errProbesRefused) {
		t.Errorf("the second probe: %v", err)
	}
	if n := served.Load(); n != 1 {
		t.Errorf("the node was probed %d times", n)
	}
	paths.refused["old"] = time.Now().Add(-refusalLimit - time.Second)
	var refused *net.OpError
	if _, err := paths.probe(t.Context(), peer, 1000); !errors.As(err, &refused) {
		t.Errorf("the node may have been upgraded: %v", err)
	}
}
