package calls_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/calls/callstest"
	"github.com/outboard-run/outboard/internal/fabric/plain"
)

// waiting starts a call that waits for ready on each connection, and returns where they end.
func waiting(t *testing.T, clients map[string]testgrpc.TestServiceClient) (ended <-chan string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ends := make(chan string, 2*len(clients))
	for name, c := range clients {
		// The port for plain gRPC takes the option as metadata.
		ctx := metadata.AppendToOutgoingContext(ctx, plain.WaitForReadyKey, "true")
		go func() {
			_, err := c.EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true))
			ends <- name + ": " + status.Code(err).String()
		}()
		go func() {
			s, err := c.FullDuplexCall(ctx, grpc.WaitForReady(true))
			if err == nil {
				_ = s.CloseSend()
				_, err = s.Recv()
				if err.Error() == "EOF" {
					err = nil
				}
			}
			ends <- name + ", stream: " + status.Code(err).String()
		}()
	}
	return ends
}

// TestWaitForReady: programs of two nodes call a service that is yet to start, and one that is
// started again. Calls that do not wait fail at once.
func TestWaitForReady(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	clients := map[string]testgrpc.TestServiceClient{
		"same node":    testgrpc.NewTestServiceClient(harbour.dial(t)),
		"another node": testgrpc.NewTestServiceClient(dinghy.dial(t)),
		"plain gRPC":   testgrpc.NewTestServiceClient(dinghy.dialPlain(t)),
	}
	for name, c := range clients {
		if _, err := c.EmptyCall(t.Context(), &testgrpc.Empty{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: a call that does not wait: %v", name, err)
		}
	}
	for range 2 {
		ends := waiting(t, clients)
		eventually(t, "the calls wait", func() bool { return harbour.inFlight()+dinghy.inFlight() == 6 })
		program := harbour.serve(t, interop.NewTestServer())
		for range 6 {
			if end := <-ends; status.Code(nil).String() != end[len(end)-2:] {
				t.Error(end)
			}
		}
		program.Stop()
		harbour.endpoints(t, 0)
		dinghy.endpoints(t, 0)
	}
}

// inFlight is how many calls of programs of the node have not ended.
func (m *member) inFlight() (n int64) {
	for _, row := range m.Table() {
		n += row.InFlight
	}
	return n
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestUpgradeWhileCallsWait: calls that wait for their service survive an upgrade.
func TestUpgradeWhileCallsWait(t *testing.T) {
	p := newPool(t)
	harbour := p.station("harbour")
	clients := map[string]testgrpc.TestServiceClient{"same node": harbour.dial()}
	ends := waiting(t, clients)
	await(t, "the calls wait", func() bool {
		n := int64(0)
		rows, err := harbour.Table(t.Context())
		for _, r := range rows {
			n += r.InFlight
		}
		return err == nil && n == 2
	})
	if _, err := harbour.Upgrade(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	harbour.serve(callstest.Echo{})
	for range 2 {
		if end := <-ends; end[len(end)-2:] != "OK" {
			t.Error(end)
		}
	}
}

// TestMaxCalls: a node's limit of calls in flight holds for its programs, and leaves a part to
// other services.
func TestMaxCalls(t *testing.T) {
	p := newPool(t)
	p.maxCalls = 16
	harbour := p.member("harbour")
	harbour.serve(t, interop.NewTestServer())
	c := testgrpc.NewTestServiceClient(harbour.dial(t))
	waitServed(t, c)
	for n := range 13 {
		s, err := c.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n < 12 {
			if err := s.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err = s.Recv(); n < 12 && err != nil || n == 12 && status.Code(err) != codes.ResourceExhausted {
			t.Errorf("stream %d of at most 12: %v", n+1, err)
		}
	}
}
