package serve_test

import (
	"slices"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// A request that ends the processes of two nodes does not end that of a third, and is executed alone on
// the second, where a request that shared its first batch then succeeds. Nodes that are lost do not
// count.
func TestRequestThatEndsProcesses(t *testing.T) {
	lost := outboard.Errorf(outboard.Unreachable, "", "lost")
	crash := &engine.Crash{Reason: lost}
	nodes := []outboard.NodeID{"dinghy", "tender", "ketch"}
	for name, c := range map[string]struct {
		errs  []error
		tried int
		kind  outboard.Kind // Other for a success, too
		ok    bool
		alone []bool
	}{
		"lost twice":         {[]error{lost, lost, nil}, 3, outboard.Other, true, []bool{false, false, false}},
		"one crash":          {[]error{crash, nil, nil}, 2, outboard.Other, true, []bool{false, true}},
		"a crash and a loss": {[]error{crash, lost, nil}, 3, outboard.Other, true, []bool{false, true, true}},
		"two crashes":        {[]error{crash, crash, nil}, 2, outboard.Other, false, []bool{false, true}},
		"a loss and crashes": {[]error{lost, crash, crash}, 3, outboard.Other, false, []bool{false, false, true}},
		"all lost":           {[]error{lost, lost, crash}, 3, outboard.Unreachable, false, []bool{false, false, false}},
	} {
		b := open(t)
		var reports []serve.Report
		b.peers.fail = map[outboard.NodeID]error{}
		for i, node := range nodes {
			reports = append(reports, serve.Report{Node: node})
			if c.errs[i] != nil {
				b.peers.fail[node] = c.errs[i]
			}
		}
		b.peers.report(reports...)
		b.push("a", repository.Config{Nodes: []string{"dinghy", "tender", "ketch"}})
		r := &serve.Request{Model: "m"}
		_, err := b.Infer(t.Context(), r)
		if (err == nil) != c.ok || outboard.KindOf(err) != c.kind || len(b.peers.asked) != c.tried || !slices.Equal(b.peers.alone, c.alone) {
			t.Errorf("%s: %v after %v, alone %v", name, err, b.peers.asked, b.peers.alone)
		}
		if r.Alone {
			t.Errorf("%s: the caller's request was changed", name)
		}
		if _, err := b.Infer(t.Context(), &serve.Request{Model: "m", Sequence: serve.Sequence{ID: "1", Start: true}}); (err == nil) != c.ok || outboard.KindOf(err) != c.kind || len(b.peers.asked) != 2*c.tried {
			t.Errorf("%s: a sequence: %v after %v", name, err, b.peers.asked)
		}
	}
}
