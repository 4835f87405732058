package serve_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// failingText is a model for text on another node, of which one version fails.
type failingText struct {
	engine.TextModel
	fails bool
}

func (f *failingText) Generate(_ context.Context, _ engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	if f.fails {
		return engine.Usage{}, errors.New("out of order")
	}
	return engine.Usage{}, emit(engine.Token{})
}

// failingVersion is the number of the version that fails.
const failingVersion = 3

func (p *peers) Text(_ outboard.NodeID, _ string, version int, _ engine.Info) engine.TextModel {
	return &failingText{fails: version == failingVersion}
}

// A canary of a model for text gets its percentage of the generations, evenly and each as a whole,
// and is taken back when they fail; errors of clients are not the model's.
func TestCanaryForText(t *testing.T) {
	b := open(t)
	b.push("b", repository.Config{Nodes: []string{"dinghy"}})
	b.push("a", repository.Config{Nodes: []string{"dinghy"}})
	b.peers.report(serve.Report{Node: "dinghy"})
	if _, err := b.repository.Rollout(t.Context(), "m", 1, 30); err != nil {
		t.Fatal(err)
	}
	if err := b.Await(t.Context(), "m", failingVersion); err != nil {
		t.Fatal(err)
	}
	opened := func(version string) *serve.Text {
		t.Helper()
		text, release, err := b.OpenText(t.Context(), "m", version, serve.Prompt{})
		if err != nil {
			t.Fatal(err)
		}
		release()
		return text
	}
	gone := errors.New("the client is gone")
	ofCanary := 0
	for range 20 {
		text := opened("")
		if again := opened(text.Pinned); again.Version.Number != text.Version.Number {
			t.Errorf("version %d, and then %d", text.Version.Number, again.Version.Number)
		}
		if text.Version.Number == failingVersion {
			ofCanary++
			continue
		}
		if _, err := text.Generate(t.Context(), engine.Generation{}, func(engine.Token) error { return gone }); !errors.Is(err, gone) {
			t.Errorf("generated: %v", err)
		}
	}
	if ofCanary != 6 {
		t.Errorf("%d of 20 generations were the canary's", ofCanary)
	}
	if m, err := b.repository.Get("m"); err != nil || m.Current().Number != failingVersion {
		t.Fatalf("taken back for errors of clients: %+v, %v", m.Current(), err)
	}
	for range 5 {
		if _, err := opened("3").Generate(t.Context(), engine.Generation{}, nil); err == nil {
			t.Fatal("it did not fail")
		}
	}
	if err := b.Await(t.Context(), "m", failingVersion+1); err != nil {
		t.Fatal(err)
	}
	m, err := b.repository.Get("m")
	if now := m.Current(); err != nil || now.Of != 2 || now.Canary != 0 {
		t.Errorf("%+v, %v", now, err)
	}
	if text := opened(""); text.Pinned != "4" || text.Version.Number != failingVersion+1 {
		t.Errorf("version %d, pinned %q", text.Version.Number, text.Pinned)
	}
}

// A prompt goes where its first token is expected soonest: to its cached prefix, unless too much
// waits there.
func TestTextGoesWhereItsFirstTokenIsSoonest(t *testing.T) {
	prompt := make([]int32, 20*engine.PrefixBlock)
	prefixes := engine.PrefixHashes("", prompt, 100)
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
		text, release, err := b.OpenText(t.Context(), "m", "", serve.Prompt{Tokens: c.prompt})
		if err != nil {
			t.Fatal(err)
		}
		release()
		if text.Node != c.want {
			t.Errorf("%s: %s, want %s: %+v", name, text.Node, c.want, b.Explain(text.Version))
		}
	}
}
