package serve_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// A model whose files do not fit onto the disk is loaded once there is space, without a request.
func TestFullDisk(t *testing.T) {
	var full atomic.Bool
	full.Store(true)
	b := openWith(t, func(o *serve.Options) {
		o.Artifacts = artifacts{lacks: true}
		o.CheckSpace = func(bytes int64) error {
			if !full.Load() {
				return nil
			}
			return outboard.Errorf(outboard.Exhausted, "", "%d are needed (%w)", bytes, syscall.ENOSPC)
		}
	})
	b.push("slow", repository.Config{})
	if err := b.Load(t.Context(), "m", ""); err == nil || !strings.Contains(err.Error(), "it is loaded once there is space") {
		t.Fatalf("got %v", err)
	}
	if x := b.Index()[0]; x.State != serve.StateFailed || !strings.Contains(x.Reason, "1 are needed") {
		t.Errorf("the model is %s: %s", x.State, x.Reason)
	}
	full.Store(false)
	b.engine.loading <- struct{}{} // it is being loaded
	b.want("s1")
}

// A model that could not be loaded says why, also once it may be loaded again.
func TestReasonOfFailureStays(t *testing.T) {
	b := open(t)
	v := b.push("broken", repository.Config{})
	if err := errors.Join(b.Load(t.Context(), "m", ""), b.Unload("m")); err == nil {
		t.Fatal("it was loaded")
	}
	if x := b.Index()[0]; x.State != serve.StateUnloaded || !strings.Contains(x.Reason, "operator Foo is unknown") {
		t.Errorf("the model is %s: %s", x.State, x.Reason)
	}
	if c := b.Explain(&v)[0]; c.Excluded || !strings.Contains(c.Why, "the last attempt failed: load m, version 1: load: operator Foo is unknown") {
		t.Errorf("the node is excluded %t: %s", c.Excluded, c.Why)
	}
}

// The reason why a model could not be loaded is not that of another model with the same files.
func TestReasonOfFailureIsOfItsModel(t *testing.T) {
	b := open(t)
	b.push("broken", repository.Config{})
	other := b.pushAs("other", "broken", repository.Config{})
	if err := errors.Join(b.Load(t.Context(), "other", ""), b.Unload("other")); err == nil {
		t.Fatal("it was loaded")
	}
	for _, x := range b.Index() {
		if (x.Reason != "") != (x.Version.Name == other.Name) {
			t.Errorf("the model %s is %s: %s", x.Version.Name, x.State, x.Reason)
		}
	}
}

// The state of a model is that of the node which can tell most of it.
func TestIndex(t *testing.T) {
	report := func(node string, s serve.State) serve.Report {
		return serve.Report{Node: outboard.NodeID(node), Models: []serve.ModelReport{{Name: "m", State: s, Reason: "why"}}}
	}
	for name, c := range map[string]struct {
		nodes   []string
		reports []serve.Report
		want    serve.State
		node    outboard.NodeID
	}{
		"none":                    {nil, nil, serve.StateUnloaded, "harbour"},
		"ready":                   {nil, []serve.Report{report("a", serve.StateFailed), report("b", serve.StateReady)}, serve.StateReady, "b"},
		"loading":                 {nil, []serve.Report{report("a", serve.StateFailed), report("b", serve.StateLoading)}, serve.StateLoading, "b"},
		"failed on one":           {nil, []serve.Report{report("a", serve.StateFailed)}, serve.StateUnloaded, "harbour"},
		"failed where it may run": {[]string{"a"}, []serve.Report{report("a", serve.StateFailed)}, serve.StateFailed, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			v := b.push("a", repository.Config{Nodes: c.nodes})
			for i := range c.reports {
				c.reports[i].Models[0].Content = v.Content()
			}
			b.peers.report(c.reports...)
			if x := b.Index()[0]; x.State != c.want || x.Node != c.node || (x.Reason != "") != (c.want == serve.StateFailed) {
				t.Errorf("%s on %s: %s", x.State, x.Node, x.Reason)
			}
		})
	}
}
