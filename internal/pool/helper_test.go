package pool_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/freeport"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// testNode is a node as far as the pool needs one.
type testNode struct {
	t       *testing.T
	name    outboard.NodeID
	dir     string
	addr    string
	devices []outboard.Device
	claims  []outboard.NodeID // which nodes have admitted it, as its own record says
	opts    pool.Options      // the times

	*pool.Pool
	id    *authority.Identity
	state *state.State
	stop  func() // leaves in good order
	kill  func() // dies: the record stays
}

func newTestNode(t *testing.T, name outboard.NodeID, devices int) *testNode {
	n := &testNode{t: t, name: name, dir: t.TempDir(), addr: reserveAddr(t)}
	for i := range devices {
		n.devices = append(n.devices, testDevice(name, i))
	}
	return n
}

// reserveAddr returns an address for a node that may stop and start again: no other socket gets its
// port meanwhile.
func reserveAddr(t *testing.T) string {
	t.Helper()
	r, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r.Addr()
}

func testDevice(node outboard.NodeID, i int) outboard.Device {
	return outboard.Device{
		ID: outboard.DeviceID(fmt.Sprintf("%s/opencl/%d", node, i)), Node: node, API: outboard.OpenCL,
		Type: outboard.GPU, Name: "Test", Vendor: "Outboard", Memory: 8 << 30, Units: 4,
	}
}

func testLog() *slog.Logger {
	if os.Getenv("OUTBOARD_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// up starts the node: by itself again, as a founder, or with a token of the
// node that it joins.
func (n *testNode) up(ctx context.Context, join *testNode) {
	n.t.Helper()
	enter := pool.EnterOptions{}
	if join != nil {
		enter.Join, enter.Token = join.addr, join.token(ctx)
	}
	if err := n.enter(ctx, enter); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) token(ctx context.Context) string {
	n.t.Helper()
	token, err := n.NewToken(ctx, time.Minute)
	if err != nil {
		n.t.Fatal(err)
	}
	return token
}

func (n *testNode) enter(ctx context.Context, enter pool.EnterOptions) error {
	l, err := net.Listen("tcp", n.addr)
	if err != nil {
		return err
	}
	enter.Dir, enter.Name, enter.Addr = n.dir, n.name, l.Addr().String()
	enter.Logger = testLog().With("self", n.name)
	id, s, err := pool.Enter(ctx, enter)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	opts := n.opts
	opts.State, opts.Identity, opts.Logger = s, id, enter.Logger
	opts.Self = outboard.Node{Addr: enter.Addr, Boot: rand.Text(), Devices: n.devices, AdmittedBy: n.claims}
	p, err := pool.Open(ctx, opts)
	if err != nil {
		return errors.Join(err, s.Close(), l.Close())
	}
	n.addr, n.Pool, n.id, n.state = enter.Addr, p, id, s
	n.serve(l)
	return nil
}

func (n *testNode) serve(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	p, s := n.Pool, n.state
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c := tls.Server(conn, n.id.ServerTLS(pool.Protocols()...))
			serving.Go(func() { _ = p.ServeConn(ctx, c) })
		}
	})
	end := func() {
		l.Close()
		cancel()
		serving.Wait()
	}
	var once sync.Once
	n.stop = func() { once.Do(func() { p.Close(); end(); s.Close() }) }
	n.kill = func() { once.Do(func() { end(); s.Close(); p.Close() }) }
	n.t.Cleanup(n.stop)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for something that will come, and fails with the test's context.
func eventually(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func acquire(ctx context.Context, t *testing.T, n *testNode, req pool.Request) []outboard.Lease {
	t.Helper()
	leases, err := n.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("%s: %v", n.name, err)
	}
	return leases
}

func selector(t *testing.T, text string) outboard.Selector {
	t.Helper()
	s, err := outboard.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
