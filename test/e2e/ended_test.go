package e2e

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

// The sessions of programs that just end, with commands under way or not, are not called lost.
func TestEndIsNoLoss(t *testing.T) {
	beside(t)
	log := logFile(t)
	r := own(t, rig.Options{Nodes: pair(), Log: log})
	busy := compiled(t, "launches")
	for _, node := range []string{"dinghy", "harbour"} {
		fillCache(t, r, node, busy, "1")
	}
	waitForCompileSteps(t, r.Node("harbour"))
	const sessions = 20
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range sessions / 4 {
				p := suite.Program{Args: []string{"clinfo", "-l"}}
				if j%2 == 0 {
					p.Args = []string{busy, "1"} // has no input, and ends in the middle
				}
				if res := p.Run(t.Context(), through(r, []string{"dinghy", "dinghy", "dinghy", "harbour"}[i], "--memory", "64MiB"), ""); res.Err != nil {
					t.Errorf("%v: %v\n%s", p.Args, res.Err, res.Stderr)
				}
			}
		})
	}
	all.Wait()
	eventually(t, "the sessions are over", func() bool { return len(list(t, r.Node("harbour"), "sessions")) == 0 })
	text, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "session lost") {
			lost = append(lost, line)
		}
	}
	// One session of 800 is still called lost, maybe since its connection is reset while answers are
	// under way. When the end itself was a race it was one of ten.
	if t.Log(lost); len(lost) > 1 {
		t.Errorf("%d sessions of %d are called lost", len(lost), sessions)
	}
}
