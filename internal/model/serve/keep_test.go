package serve_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

func (p *peers) Keep(_ context.Context, node outboard.NodeID, name string, idle time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, string(node)+" "+name+" "+idle.String())
	return nil
}

// A client's wish replaces the configuration's limit for an unused model.
func TestKeep(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{Idle: -1, Aliases: []string{"alias"}})
	b.want("a1")
	if err := serve.Keep(t.Context(), b.Server, "alias", 1); err != nil {
		t.Fatal(err)
	}
	<-b.engine.closed // it was unused for a nanosecond
	b.want("a1")
	if err := serve.Keep(t.Context(), b.Server, "alias", 0); err != nil {
		t.Fatal(err)
	}
	<-b.engine.closed
	if n := b.engine.loads("a"); n != 2 {
		t.Errorf("loaded %d times", n)
	}
	if err := serve.Keep(t.Context(), b.Server, "alias", 0); err != nil || b.engine.loads("a") != 2 {
		t.Errorf("a model that is not loaded: %v", err)
	}
	if err := serve.Keep(t.Context(), b.Server, "other", 0); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("a model that does not exist: %v", err)
	}
}

// The nodes that have loaded a model learn how long they are to keep it, also a node whose report
// comes late.
func TestKeepElsewhere(t *testing.T) {
	b := open(t)
	v := b.push("a", repository.Config{})
	waited := make(chan struct{})
	b.peers.mu.Lock()
	b.peers.waited = waited
	b.peers.mu.Unlock()
	kept := make(chan error, 1)
	go func() { kept <- serve.Keep(t.Context(), b.Server, "m", time.Hour) }()
	<-waited
	report := func(node outboard.NodeID, s serve.State) serve.Report {
		return serve.Report{Node: node, Models: []serve.ModelReport{{Name: "m", Content: v.Content(), State: s}}}
	}
	b.peers.report(report("dinghy", serve.StateReady), report("ketch", serve.StateUnloaded))
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	if want := []string{"dinghy m 1h0m0s"}; !slices.Equal(b.peers.kept, want) {
		t.Errorf("kept %q, want %q", b.peers.kept, want)
	}
}
