package serve

import (
	"context"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// describingPeers are nodes that describe each model in their own way.
type describingPeers struct {
	Peers
	context map[outboard.NodeID]int
}

func (p describingPeers) Describe(_ context.Context, node outboard.NodeID, _ string, _ int) (engine.Info, int, error) {
	return engine.Info{Context: p.context[node], Vocabulary: 1}, 1, nil
}

// A node describes a model wrongly. Requests that other nodes execute are not checked by that.
func TestDescriptionsOfHostileNodes(t *testing.T) {
	s := &Server{infos: map[nodeContent]engine.Info{}}
	s.opts.Peers = describingPeers{context: map[outboard.NodeID]int{"evil": 1, "dinghy": 4096}}
	v := &repository.Version{Name: "m", Number: 1}
	for range 2 { // the second time from the cache
		for node, want := range map[outboard.NodeID]int{"evil": 1, "dinghy": 4096} {
			info, _, err := describeText(t.Context(), s, v, "", Candidate{Node: node, ready: true})
			if err != nil || info.Context != want {
				t.Errorf("%s: a context of %d, %v, want %d", node, info.Context, err, want)
			}
		}
	}
}
