package state_test

import (
	"context"
	"testing"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// lent is a socket on which a node lends its state.
// attached opens a node's state as a helper process of it does, over a socket.
func attached(ctx context.Context, t testing.TB, n *testNode) *state.State {
	t.Helper()
	return statetest.Attach(ctx, t, string(n.name), statetest.Lend(t, n.State))
}
