package outboardtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls/callstest"
	"github.com/outboard-run/outboard/outboardtest"
)

// A rate of the whole pool is divided among its nodes, and divided anew when one leaves: callers on
// all nodes get exactly its burst together, with a refill that is too slow to count.
func TestRateOfTheWholePool(t *testing.T) {
	const burst = 30
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{
		{Name: "harbour", NoDevices: true}, {Name: "east", NoDevices: true}, {Name: "west", NoDevices: true},
	}})
	callstest.Serve(t, callsOf(p.Node("harbour")), interop.NewTestServer())
	callers := map[outboard.NodeID]testgrpc.TestServiceClient{}
	for _, name := range []outboard.NodeID{"harbour", "east", "west"} {
		c, err := fabric.Dial(callsOf(p.Node(name)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		callers[name] = testgrpc.NewTestServiceClient(c)
	}
	// The buckets of each round are new ones, by the policy's name. The nodes learn of a policy, and
	// of a node that has left, at their own time: until then a round ends otherwise.
	for round, members := range [][]outboard.NodeID{{"harbour", "east", "west"}, {"harbour", "east"}} {
		attempt := 0
		eventually(t, fmt.Sprintf("%d nodes admit %d calls each", len(members), burst/len(members)), func() bool {
			attempt++
			applyRate(t, p.Node("harbour"), fmt.Sprintf("pool-%d-%d", round, attempt), burst)
			admitted := map[outboard.NodeID]int{}
			for range 2 * burst {
				for _, name := range members {
					if _, err := callers[name].EmptyCall(t.Context(), &testgrpc.Empty{}); err == nil {
						admitted[name]++
					} else if code := status.Code(err); attempt > 1 && code != codes.ResourceExhausted && code != codes.Unavailable && code != codes.Unimplemented {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
			return !slices.ContainsFunc(members, func(n outboard.NodeID) bool { return admitted[n] != burst/len(members) })
		})
		if round == 0 {
			p.Node("west").Stop()
		}
	}
}

func applyRate(t *testing.T, n *outboardtest.Node, name string, burst int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rate.yaml")
	text := fmt.Sprintf("policies:\n- name: %s\n  rate: {rate: 1/h, burst: %d, scope: pool}\n", name, burst)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := n.Command(t.Context(), "policies", "apply", file).CombinedOutput(); err != nil {
		t.Fatalf("policies apply: %v: %s", err, out)
	}
}

// callsOf returns the target of a node's programs.
func callsOf(n *outboardtest.Node) string {
	return "node:" + filepath.Join(n.Data, client.CallsSocketName)
}
