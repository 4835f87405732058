package cli_test

import (
	"testing"

	"github.com/outboard-run/outboard/client"
)

// Without a majority the records of nodes expire, and lists become empty: they say why.
func TestIncompleteLists(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.pool.keep("")
	n.pool.problems = []client.HealthProblem{{Part: "functions", Text: "slow"}}
	if got := n.run(t, "", "devices"); got.status != 0 || got.stderr != "" {
		t.Errorf("status %d: %q", got.status, got.stderr)
	}
	n.pool.problems = []client.HealthProblem{{Part: "state", Text: "the pool's state: no write was acknowledged for 51s"}}
	got := n.run(t, "", "devices", "-o", "json")
	want := "outboard: the list may be incomplete: the pool's state: no write was acknowledged for 51s; see `outboard status`\n"
	if got.status != 0 || got.stdout != "[]\n" || got.stderr != want {
		t.Errorf("status %d: %q, %q", got.status, got.stdout, got.stderr)
	}
}
