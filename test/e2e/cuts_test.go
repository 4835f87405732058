package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// TestCutIsBridged cuts the network three times while ffmpeg uses a device of another node. The
// pictures are those that it makes without cuts.
func TestCutIsBridged(t *testing.T) {
	beside(t)
	need.Root(t)
	need.Program(t, "ffmpeg")
	r := own(t, rig.Options{Nodes: withoutCache(pair())})
	p := filter("chain", graphs(t)["chain"], 120)
	essence := func(way suite.Launcher) string {
		out := p.Run(t.Context(), way, "")
		text, err := p.Essence(out)
		if err != nil || out.Err != nil {
			t.Errorf("%v, %v: %s", out.Err, err, out.Stderr)
		}
		return text
	}
	want := essence(through(r, "harbour"))
	ended := make(chan string, 1)
	go func() { ended <- essence(through(r, "dinghy", "--dead-after", "60s")) }()
	cuts := 0
	for running := true; running; {
		// A session is there, and then some time has passed, so that the cut is somewhere in it.
		// The first connection to the node is not repeated, and harbour's own session may still end.
		eventually(t, "the program uses the device, or has ended", func() bool {
			return len(ended) > 0 || slices.ContainsFunc(list(t, r.Node("harbour"), "sessions"), func(s map[string]any) bool { return s["holder"] == "dinghy" })
		})
		if cuts < 3 && len(ended) == 0 {
			cuts++
			cutFor(t, r.Node("dinghy"), 1500*time.Millisecond)
		}
		select {
		case got := <-ended:
			running = false
			if got != want {
				t.Errorf("after %d cuts it made %q, without any %q", cuts, got, want)
			}
			if cuts == 0 {
				t.Error("it ended before the first cut")
			}
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// cutFor cuts a node off for a while.
func cutFor(t *testing.T, n *rig.Node, long time.Duration) {
	t.Helper()
	if err := n.Cut(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	time.Sleep(long)
	if err := n.Cut(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}
