package serve_test

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

func (p *peers) Text(outboard.NodeID, string, int, engine.Info) engine.TextModel { return nil }

// A prompt goes where its first token is expected soonest: to its cached prefix, unless too much
// waits there.
func TestTextGoesWhereItsFirstTokenIsSoonest(t *testing.T) {
	prompt := make([]int32, 20*engine.PrefixBlock)
	prefixes := engine.PrefixHashes(prompt, 100)
	node := func(name string, l serve.TextLoad) serve.Report {
		l.Slots, l.PerToken, l.Lifetime = 2, time.Millisecond, time.Second
		return serve.Report{Node: outboard.NodeID(name), Models: []serve.ModelReport{{Name: "m", State: serve.StateReady, Text: &l}}}
	}
	for name, c := range map[string]struct {
		reports []serve.Report
		prompt  []int32
		want    outboard.NodeID
	}{
		"the cached prefix": {[]serve.Report{node("dinghy", serve.TextLoad{}), node("ketch", serve.TextLoad{Prefixes: prefixes}), node("yawl", serve.TextLoad{Prefixes: prefixes[:3]})}, prompt, "ketch"},
		"less waits":        {[]serve.Report{node("dinghy", serve.TextLoad{Pending: 500}), node("ketch", serve.TextLoad{}), node("yawl", serve.TextLoad{Running: 2, Waiting: 1})}, prompt, "ketch"},
		"too much waits at the prefix": {
			[]serve.Report{node("dinghy", serve.TextLoad{Pending: 300}), node("ketch", serve.TextLoad{Prefixes: prefixes, Running: 2, Waiting: 4})}, prompt, "dinghy",
		},
		"without a prompt": {[]serve.Report{node("dinghy", serve.TextLoad{Running: 2}), node("ketch", serve.TextLoad{})}, nil, "ketch"},
	} {
		b := open(t) // which remembers where it has sent prompts
		b.push("a", repository.Config{Nodes: []string{"dinghy", "ketch", "yawl"}})
		b.peers.report(c.reports...)
		text, release, err := serve.OpenTextFor(t.Context(), b.Server, "m", "", c.prompt)
		if err != nil {
			t.Fatal(err)
		}
		release()
		if text.Node != c.want {
			t.Errorf("%s: %s, want %s: %+v", name, text.Node, c.want, b.Explain(text.Version))
		}
	}
}
