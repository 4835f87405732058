package remote_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/remote"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

func openPeers(t *testing.T, self outboard.NodeID, s *state.State) *remote.Peers {
	t.Helper()
	p, err := remote.Open(t.Context(), remote.Options{
		Self: self, Socket: filepath.Join(t.TempDir(), "socket"), State: s,
		Members: func() []outboard.Node { return []outboard.Node{{ID: "harbour"}, {ID: "dinghy"}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// A node without models reports too: another one may choose it for the pool's first model.
func TestNodesWithoutModelsReport(t *testing.T) {
	s := statetest.Open(t)
	harbour, dinghy := openPeers(t, "harbour", s), openPeers(t, "dinghy", s)
	if err := dinghy.Publish(t.Context(), serve.Report{Node: "dinghy", Servers: []string{"triton"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		changed := harbour.Changed()
		if r := harbour.Reports(); len(r) > 0 {
			if r[0].Node != "dinghy" || len(r[0].Servers) != 1 {
				t.Errorf("reports %+v", r)
			}
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("no report")
		}
	}
}
