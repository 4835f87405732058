package node_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls/callstest"
	"github.com/outboard-run/outboard/outboardtest"
)

func callsOf(n *outboardtest.Node) string {
	return "node:" + filepath.Join(n.Data, client.CallsSocketName)
}

// serveCalls runs a program that serves on a node until the test ends.
func serveCalls(t *testing.T, n *outboardtest.Node) {
	t.Helper()
	callstest.Serve(t, callsOf(n), interop.NewTestServer())
}

// dialCalls returns a client of a node's programs that reaches the service.
func dialCalls(t *testing.T, n *outboardtest.Node) testgrpc.TestServiceClient {
	t.Helper()
	conn, err := fabric.Dial(callsOf(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := testgrpc.NewTestServiceClient(conn)
	eventually(t, "the service is reached", func() bool {
		_, err := c.EmptyCall(t.Context(), &testgrpc.Empty{})
		return err == nil
	})
	return c
}

// A call from one node to another goes through both nodes' processes and the port
// that everything else uses too, before and after upgrades of either.
func TestCallsBetweenNodes(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	harbour, dinghy := p.Node("harbour"), p.Node("dinghy")
	serveCalls(t, harbour)
	c := dialCalls(t, dinghy)
	stream, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ping := func() {
		t.Helper()
		if _, err := c.EmptyCall(t.Context(), &testgrpc.Empty{}); err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 7}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	for _, n := range []*outboardtest.Node{harbour, dinghy, harbour, dinghy} {
		u, err := n.Client().Upgrade(t.Context(), client.UpgradeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if u.Node != n.Name || u.To.Number != u.From.Number+1 {
			t.Errorf("got %+v", u)
		}
		ping()
	}
	// While a stream moves, both processes count it.
	eventually(t, "the stream is shown once", func() bool { return inFlight(t, dinghy, "FullDuplexCall") == 1 })
	if text := metrics(t, dinghy); !strings.Contains(text, `outboard_fabric_connections{process="calls"}`) {
		t.Errorf("the connection to the other node is not in the metrics:\n%s", text)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

// Programs of a node that was removed reach no service of another node: the connection that their
// node has open ends with its streams, and it gets no new one.
func TestRemovedNodeReachesNoService(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	harbour, dinghy := p.Node("harbour"), p.Node("dinghy")
	serveCalls(t, harbour)
	c := dialCalls(t, dinghy)
	call := func() error {
		_, err := c.EmptyCall(t.Context(), &testgrpc.Empty{})
		return err
	}
	stream, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ping := func() error {
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 7}}}); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	if err := ping(); err != nil {
		t.Fatal(err)
	}
	if _, err := harbour.Client().RemoveNode(t.Context(), "dinghy", time.Minute); err != nil {
		t.Fatal(err)
	}
	eventually(t, "calls are refused", func() bool { return call() != nil })
	for range 10 {
		if call() == nil {
			t.Error("a call succeeded after one was refused")
		}
	}
	if err := ping(); err == nil {
		t.Error("the stream goes on")
	}
}

// inFlight returns how many calls of a method a node shows.
func inFlight(t *testing.T, n *outboardtest.Node, method string) (calls int64) {
	t.Helper()
	rows, err := n.Client().Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Method == method {
			calls += r.InFlight
		}
	}
	return calls
}
