package pool_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

const childEnv = "OUTBOARD_TEST_CHILD_DIR"

// TestChild is not a test: it is the founder, in a process of its own.
func TestChild(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		t.Skip("this is a part of TestFounderIsKilled")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a := newTestNode(t, "a", 1)
	a.dir = dir
	a.up(ctx, nil)
	fmt.Println("node", a.addr, a.token(ctx), a.token(ctx))
	// The input ends when the parent does.
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startChild runs a founder in a process and returns its address and two tokens.
func startChild(ctx context.Context, t *testing.T, dir string) (child *exec.Cmd, addr string, tokens []string) {
	t.Helper()
	child = exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$", "-test.v")
	child.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = os.Stderr
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 4 && words[0] == "node" {
			return child, words[1], words[2:]
		}
	}
	t.Fatal("the child ended")
	return nil, "", nil
}

func waitCopies(ctx context.Context, t *testing.T, nodes ...*testNode) {
	t.Helper()
	for _, n := range nodes {
		eventually(ctx, t, "three copies on "+string(n.name), func() bool {
			copies, err := n.state.LiveCopies(ctx)
			return err == nil && copies == state.Copies && n.state.Role() == "voter"
		})
	}
}

// From the third node on any one may die, here the founder, killed: within 10 s
// the others lease and place, let nodes in, and no lease between them is lost.
//
// The founder leads when it dies: the others must elect first.
func TestFounderIsKilled(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		t.Skip("this is the child")
	}
	t.Parallel()
	ctx := testContext(t)
	founder, addr, tokens := startChild(ctx, t, t.TempDir())
	b, c := newTestNode(t, "b", 1), newTestNode(t, "c", 1)
	for i, n := range []*testNode{b, c} {
		n.opts.NodeTTL = time.Minute // heartbeats are late while the leader changes on a busy machine
		if err := n.enter(ctx, pool.EnterOptions{Join: addr, Token: tokens[i]}); err != nil {
			t.Fatal(err)
		}
	}
	waitCopies(ctx, t, b, c)
	wantNodes(ctx, t, b, "a", "b", "c")
	lease := acquire(ctx, t, b, pool.Request{Selector: selector(t, "node=c")})[0]
	hold, stopHolding := context.WithCancel(ctx)
	held := make(chan error, 1)
	go func() { held <- b.Hold(hold, lease) }()
	claim, err := b.Claim(lease)
	if err != nil {
		t.Fatal(err)
	}

	makeLeader(ctx, t, b, "a")
	wantNodes(ctx, t, c, "a", "b", "c")
	if _, _, err := c.Check(ctx, claim); err != nil { // which waits until c has read of the lease
		t.Fatal(err)
	}
	if err := founder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if _, _, err := c.Check(ctx, claim); err != nil {
		t.Errorf("the lease between living nodes, at once: %v", err)
	}
	other := acquire(ctx, t, c, pool.Request{Selector: selector(t, "node=b")})[0]
	took := time.Since(killed)
	t.Logf("the others lease %.1f s after the founder's death", took.Seconds())
	if err := c.Release(ctx, other); err != nil {
		t.Fatal(err)
	}
	wantNodes(ctx, t, b, "b", "c")
	if _, _, err := c.Check(ctx, claim); err != nil {
		t.Errorf("the lease between living nodes, later: %v", err)
	}
	d := newTestNode(t, "d", 0)
	d.up(ctx, c)
	wantNodes(ctx, t, d, "b", "c", "d")
	eventually(ctx, t, "the late node keeps no copy, the voters do", func() bool { return cmp.Equal(copies(d), []outboard.NodeID{"b", "c"}) })
	stopHolding()
	if err := <-held; err != nil {
		t.Errorf("the held lease: %v", err)
	}
}

// The same pool lives in an existing NATS cluster, of which any server may die.
func TestExternalCluster(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	servers := natsCluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	url := strings.Join(urls, ",")
	a, b := newTestNode(t, "a", 1), newTestNode(t, "b", 1)
	for _, n := range []*testNode{a, b} {
		if err := n.enter(ctx, pool.EnterOptions{NATSURL: url}); err != nil {
			t.Fatal(err)
		}
	}
	wantNodes(ctx, t, a, "a", "b")
	eventually(ctx, t, "three copies", func() bool {
		copies, err := a.state.LiveCopies(ctx)
		return err == nil && copies == 3
	})
	lease := acquire(ctx, t, a, pool.Request{Selector: selector(t, "node=b")})[0]
	servers[0].Shutdown()
	start := time.Now()
	if err := a.Release(ctx, lease); err != nil {
		t.Fatal(err)
	}
	lease = acquire(ctx, t, b, pool.Request{Selector: selector(t, "node=b")})[0]
	t.Logf("released and leased %.1f s after a server's end", time.Since(start).Seconds())
	claim, err := b.Claim(lease)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Check(ctx, claim); err != nil {
		t.Error(err)
	}
	if err := a.enterOther(ctx, url); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("a node of another pool: %v, want Denied", err)
	}
}

// A cluster lets a removed node connect, since it knows only users: the node itself makes no request
// any more, so that an operator who still uses it changes nothing of the pool.
func TestRemovedFromExternalCluster(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	url := natsCluster(t)[0].ClientURL()
	a, b := newTestNode(t, "a", 0), newTestNode(t, "b", 0)
	for _, n := range []*testNode{a, b} {
		if err := n.enter(ctx, pool.EnterOptions{NATSURL: url}); err != nil {
			t.Fatal(err)
		}
	}
	wantNodes(ctx, t, a, "a", "b")
	if err := a.Remove(ctx, "b", pool.DefaultAway); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "b knows that it was removed", func() bool { return authority.CheckMembership(b.id) != nil })
	if err := b.Remove(ctx, "a", pool.DefaultAway); !errors.Is(err, authority.ErrRemoved) {
		t.Errorf("the removed node removes a node: %v, want %v", err, authority.ErrRemoved)
	}
	for _, n := range []*testNode{a, b} {
		if token, err := n.NewToken(ctx, time.Hour); outboard.KindOf(err) != outboard.Conflict {
			t.Errorf("node %s makes the token %q: %v; the cluster admits nodes", n.name, token, err)
		}
	}
	if _, err := b.state.Put(ctx, "policies", []byte("{}"), 0); !errors.Is(err, authority.ErrRemoved) {
		t.Errorf("the removed node writes: %v, want %v", err, authority.ErrRemoved)
	}
	wantNodes(ctx, t, a, "a")
}

// enterOther tries to bring a node of another pool into the one at url.
func (n *testNode) enterOther(ctx context.Context, url string) error {
	stranger := newTestNode(n.t, "x", 0)
	stranger.up(ctx, nil)
	stranger.stop()
	return stranger.enter(ctx, pool.EnterOptions{NATSURL: url})
}

// natsCluster runs three NATS servers that have nothing to do with Outboard.
func natsCluster(t *testing.T) []*natsserver.Server {
	t.Helper()
	var servers []*natsserver.Server
	var routes string
	for i := range 3 {
		opts := &natsserver.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(),
			Cluster: natsserver.ClusterOpts{Name: "theirs", Host: "127.0.0.1", Port: statetest.FreePort(t)},
		}
		self := fmt.Sprintf("nats://127.0.0.1:%d", opts.Cluster.Port)
		opts.Routes = natsserver.RoutesFromStr(strings.TrimPrefix(routes+","+self, ","))
		if routes == "" {
			routes = self
		}
		srv, err := natsserver.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		srv.Start()
		t.Cleanup(func() {
			srv.Shutdown()
			srv.WaitForShutdown()
		})
		if !srv.ReadyForConnections(2 * time.Minute) {
			t.Fatal("the NATS server does not start")
		}
		servers = append(servers, srv)
	}
	return servers
}

// makeLeader makes a node lead the table's Raft group, so that its death hurts most.
func makeLeader(ctx context.Context, t *testing.T, through *testNode, name string) {
	t.Helper()
	eventually(ctx, t, name+" leads", func() bool {
		// An answer may be lost while the leader changes.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return through.state.MoveLeader(ctx, name) == nil
	})
}
