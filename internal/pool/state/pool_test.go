package state_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/freeport"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// testNode is a node as far as the state needs one: an identity, a directory
// and a TLS listener.
type testNode struct {
	t    testing.TB
	name outboard.NodeID
	ca   *authority.Authority
	id   *authority.Identity
	dir  string
	addr string
	// replaceAfter, listen and routePeers are the options.
	replaceAfter time.Duration
	listen       string
	routePeers   []string
	log          *slog.Logger

	*state.State
	stop func()
}

func newTestNode(t testing.TB, ca *authority.Authority, name outboard.NodeID) *testNode {
	t.Helper()
	id, err := ca.NewIdentity(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Reserve() // so that no other socket gets it while the node is stopped
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	return &testNode{t: t, name: name, ca: ca, id: id, dir: t.TempDir(), addr: port.Addr()}
}

func testLog() *slog.Logger {
	if os.Getenv("OUTBOARD_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open starts the node, with peers when it is to join. Close or the end of the test stops it.
func (n *testNode) open(ctx context.Context, peers ...string) {
	n.t.Helper()
	l, err := net.Listen("tcp", n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.addr = l.Addr().String()
	n.State, err = state.Open(ctx, state.Options{
		Dir: n.dir, Name: string(n.name), Addr: n.addr, Peers: peers, Dial: n.dial,
		TLS: n.id.RouteTLS, ReplaceAfter: n.replaceAfter, Listen: n.listen, RoutePeers: n.routePeers,
		Logger: cmp.Or(n.log, testLog()).With("node", n.name),
	})
	if err != nil {
		n.t.Fatal(errors.Join(err, l.Close()))
	}
	serve, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { n.accept(serve, l, &serving) })
	n.stop = sync.OnceFunc(func() {
		l.Close()
		cancel()
		serving.Wait()
		n.Close()
	})
	n.t.Cleanup(n.stop)
}

func (n *testNode) dial(ctx context.Context, addr string) (net.Conn, error) {
	cfg := n.id.RouteTLS(nil)
	cfg.NextProtos = []string{state.Protocol}
	return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
}

func (n *testNode) accept(ctx context.Context, l net.Listener, serving *sync.WaitGroup) {
	cfg := n.id.RouteTLS(nil)
	cfg.NextProtos = []string{state.Protocol}
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			c := tls.Server(conn, cfg)
			defer c.Close()
			if err := c.HandshakeContext(ctx); err != nil {
				return
			}
			peer, err := n.id.PeerOf(c.ConnectionState())
			if err != nil {
				return
			}
			_ = n.ServeConn(ctx, c, peer.Node)
		})
	}
}

func testCA(t testing.TB) *authority.Authority {
	t.Helper()
	ca, err := authority.Found(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}
