package pool

import (
	"testing"

	"github.com/outboard-run/outboard"
)

// A record of another process is reported when it comes again, and no longer when it does not.
func TestClones(t *testing.T) {
	w := &CloneWatch{boot: "mine"}
	own, other := outboard.Node{Boot: "mine"}, outboard.Node{Boot: "other", Addr: "10.0.0.3:7433"}
	for i, step := range []struct {
		record        outboard.Node
		present, news bool
		healthy       bool
	}{
		{own, true, false, true},
		{outboard.Node{}, false, false, true},
		{other, true, false, true}, // as a late heartbeat of the last start
		{own, true, false, true},
		{other, true, false, true},
		{other, true, true, false},
		{other, true, false, false},
		{own, true, false, true},
	} {
		if news := w.observe(step.record, step.present); news != step.news {
			t.Errorf("step %d: found anew: %v, want %v", i, news, step.news)
		}
		if err := w.Health(); (err == nil) != step.healthy {
			t.Errorf("step %d: the error is %v", i, err)
		}
	}
}
