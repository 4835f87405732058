package calls_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/calls/callstest"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// pool is nodes that share a table, and nothing of a node but its calls.
type pool struct {
	t     *testing.T
	ca    *authority.Authority
	state *state.State
	// maxCalls is the limit of the nodes that member makes, 0 for the default; admit decides about
	// the processes that connect to them.
	maxCalls int
	admit    calls.Admitter

	mu      sync.Mutex
	nodes   map[outboard.NodeID]outboard.Node
	changed chan struct{}
}

func newPool(t *testing.T) *pool {
	t.Helper()
	ca, err := authority.Found(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &pool{t: t, ca: ca, state: statetest.Open(t), nodes: map[outboard.NodeID]outboard.Node{}, changed: make(chan struct{})}
}

// Node implements services.Members.
func (p *pool) Node(id outboard.NodeID) (outboard.Node, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.nodes[id]
	return n, ok
}

// Changed implements services.Members.
func (p *pool) Nodes() []outboard.Node { return nil }

func (p *pool) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *pool) set(n outboard.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes[n.ID] = n
	close(p.changed)
	p.changed = make(chan struct{})
}

// member is the calls of one node.
type member struct {
	*calls.Plane
	registry *services.Registry
	socket   string
	plain    string
}

func (p *pool) member(name outboard.NodeID) *member {
	t := p.t
	t.Helper()
	id, err := p.ca.NewIdentity(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	port, door := listen(t), listen(t)
	p.set(outboard.Node{ID: name, Boot: "1", Addr: door.Addr().String(), Fingerprint: id.Fingerprint()})
	registry, err := services.Open(t.Context(), services.Options{State: p.state, Members: p, Self: name, Boot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{registry: registry, socket: filepath.Join(t.TempDir(), "calls.sock"), plain: port.Addr().String()}
	m.Plane, err = calls.Open(t.Context(), calls.Options{
		Registry: registry, Members: p, Self: name, Socket: m.socket, Plain: port, Identify: identify, Admit: p.admit, MaxCalls: p.maxCalls,
		TLS: func(to outboard.Node) *tls.Config { return id.ClientTLS(to.ID, to.Fingerprint, calls.Protocol) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { m.doors(t.Context(), &serving, door, id) })
	t.Cleanup(func() {
		_ = door.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		_ = registry.Close()
		serving.Wait()
	})
	return m
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// doors lets other nodes in.
func (m *member) doors(ctx context.Context, serving *sync.WaitGroup, l net.Listener, id *authority.Identity) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			conn := framed.Server(nc, framed.Options{TLS: id.ServerTLS(calls.Protocol)})
			defer conn.Close()
			if conn.Handshake(ctx) == nil {
				m.ServePeer(ctx, conn, "other")
			}
		})
	}
}

// serve runs a program with the test service on a node until the test ends.
func (m *member) serve(t *testing.T, impl testgrpc.TestServiceServer) *callstest.Program {
	t.Helper()
	return callstest.Serve(t, "node:"+m.socket, impl)
}

func (m *member) dial(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	c, err := fabric.Dial("node:" + m.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (m *member) dialPlain(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	c, err := grpc.NewClient(m.plain, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// endpoints waits until the node knows n endpoints.
func (m *member) endpoints(t *testing.T, n int) {
	t.Helper()
	m.eventually(t, fmt.Sprintf("%d endpoints", n), func() bool { return len(m.registry.Endpoints()) == n })
}

func (m *member) eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		changed := m.registry.Changed()
		if f() {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-limit.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

// cancelAfterBegin is interop.DoCancelAfterBegin. A client of grpc-go that cancels and then says
// that it has sent everything may have a good answer before it sees its own cancelling.
func cancelAfterBegin(t *testing.T, c testgrpc.TestServiceClient) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := c.StreamingInputCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err = s.CloseAndRecv(); err != nil && status.Code(err) != codes.Canceled {
		t.Errorf("cancelled after its beginning: %v", err)
	}
}

// The interoperability cases, from programs on one node to a program on the same
// and on another one.
func TestInteroperability(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	harbour.serve(t, interop.NewTestServer())
	harbour.endpoints(t, 1)
	dinghy.endpoints(t, 1)
	for name, conn := range map[string]grpc.ClientConnInterface{
		"same node":          harbour.dial(t),
		"same node, gRPC":    harbour.dialPlain(t),
		"another node":       dinghy.dial(t),
		"another node, gRPC": dinghy.dialPlain(t),
	} {
		t.Run(name, func(t *testing.T) {
			c := testgrpc.NewTestServiceClient(conn)
			waitServed(t, c)
			interop.DoEmptyUnaryCall(t.Context(), c)
			interop.DoLargeUnaryCall(t.Context(), c)
			interop.DoClientStreaming(t.Context(), c)
			interop.DoServerStreaming(t.Context(), c)
			interop.DoPingPong(t.Context(), c)
			interop.DoEmptyStream(t.Context(), c)
			interop.DoTimeoutOnSleepingServer(t.Context(), c)
			cancelAfterBegin(t, c)
			interop.DoCancelAfterFirstResponse(t.Context(), c)
			interop.DoCustomMetadata(t.Context(), c)
			interop.DoStatusCodeAndMessage(t.Context(), c)
			interop.DoSpecialStatusMessage(t.Context(), c)
		})
	}
}

// waitServed waits until the router has the endpoint that the table has.
func waitServed(t *testing.T, c testgrpc.TestServiceClient) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		_, err := c.EmptyCall(limit, &testgrpc.Empty{})
		if code := status.Code(err); code != codes.Unavailable && code != codes.Unimplemented {
			return
		}
		select {
		case <-limit.Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// An endpoint that goes is not called any more, one that comes is.
func TestEndpointsComeAndGo(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	c := testgrpc.NewTestServiceClient(dinghy.dial(t))
	_, err := c.EmptyCall(t.Context(), &testgrpc.Empty{})
	if got := status.Code(err); got != codes.Unimplemented && got != codes.Unavailable {
		t.Errorf("a service that nobody serves: %v", err)
	}
	first := harbour.serve(t, interop.NewTestServer())
	dinghy.endpoints(t, 1)
	waitServed(t, c)
	second := dinghy.serve(t, interop.NewTestServer())
	dinghy.endpoints(t, 2)
	first.Stop()
	dinghy.endpoints(t, 1)
	dinghy.eventually(t, "calls pass", func() bool {
		_, err := c.EmptyCall(t.Context(), &testgrpc.Empty{})
		return err == nil
	})
	second.Stop()
	dinghy.endpoints(t, 0)
	dinghy.eventually(t, "calls fail", func() bool {
		_, err := c.EmptyCall(t.Context(), &testgrpc.Empty{})
		return err != nil
	})
}

// A service may become known after the policies on its fields were applied.
func TestPoliciesOnFieldsOfALaterService(t *testing.T) {
	p := newPool(t)
	harbour := p.member("harbour")
	const text = "balance:\n- method: round_robin\npolicies:\n- name: small\n  services: [grpc.testing.TestService]\n  methods: [UnaryCall]\n" +
		"  when: request.response_size > 5\n  access: {default: deny, rules: [{allow: {tenants: [gold]}}]}\n"
	if _, err := harbour.registry.Apply(t.Context(), "test.yaml", text); err != nil {
		t.Fatal(err)
	}
	harbour.serve(t, interop.NewTestServer())
	c := testgrpc.NewTestServiceClient(harbour.dial(t))
	harbour.endpoints(t, 1)
	waitServed(t, c)
	code := func(size int32) codes.Code {
		_, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{ResponseSize: size})
		return status.Code(err)
	}
	harbour.eventually(t, "large answers are denied", func() bool { return code(9) == codes.PermissionDenied })
	if got := code(3); got != codes.OK {
		t.Errorf("small answers: %v", got)
	}
}

// A node that starts when one of the policies can't be read, since the service that it is about is
// gone, or the balancing rules, since a newer node has applied them, does not start without the others.
func TestPoliciesOnAServiceThatIsGone(t *testing.T) {
	p := newPool(t)
	harbour := p.member("harbour")
	const text = "balance:\n- method: of_a_newer_version\npolicies:\n- name: stamp\n  services: [gone.Service]\n  rewrite: {request: {set: {text: peer}}}\n" +
		"- name: closed\n  services: [grpc.testing.TestService]\n  methods: [EmptyCall]\n  access: {default: deny, rules: [{allow: {tenants: [gold]}}]}\n" +
		"- name: misread\n  services: [grpc.testing.TestService]\n  methods: [UnaryCall]\n  when: request.no_such_field > 5\n  access: {rules: [{deny: {}}]}\n"
	if _, err := harbour.registry.Apply(t.Context(), "test.yaml", text); err != nil {
		t.Fatal(err)
	}
	harbour.serve(t, interop.NewTestServer())
	harbour.endpoints(t, 1)
	dinghy := p.member("dinghy")
	dinghy.endpoints(t, 1)
	c := testgrpc.NewTestServiceClient(dinghy.dial(t))
	dinghy.eventually(t, "the service is served", func() bool {
		_, err := c.UnimplementedCall(t.Context(), &testgrpc.Empty{})
		return status.Code(err) == codes.Unimplemented
	})
	if _, err := c.EmptyCall(t.Context(), &testgrpc.Empty{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a policy that can be read: %v", err)
	}
	if _, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "policy misread") {
		t.Errorf("a policy that can't be read: %v", err)
	}
}

// Policies that one node applies are in force on all.
func TestPoliciesReachEveryNode(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	harbour.serve(t, interop.NewTestServer())
	c := testgrpc.NewTestServiceClient(dinghy.dial(t))
	dinghy.endpoints(t, 1)
	waitServed(t, c)
	const text = "policies:\n- name: closed\n  services: [grpc.testing.TestService]\n  access: {default: deny, rules: [{allow: {tenants: [gold]}}]}\n"
	if _, err := harbour.Parse("test.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := harbour.registry.Apply(t.Context(), "test.yaml", text); err != nil {
		t.Fatal(err)
	}
	code := func() codes.Code {
		_, err := c.EmptyCall(t.Context(), &testgrpc.Empty{})
		return status.Code(err)
	}
	dinghy.eventually(t, "calls are denied", func() bool { return code() == codes.PermissionDenied })
	if _, err := dinghy.registry.Apply(t.Context(), "none.yaml", "policies: []\n"); err != nil {
		t.Fatal(err)
	}
	dinghy.eventually(t, "calls pass again", func() bool { return code() == codes.OK })
	if _, err := harbour.registry.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	dinghy.eventually(t, "and are denied again", func() bool { return code() == codes.PermissionDenied })
}
