package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// noHistory is that of workflows that have never run.
type noHistory struct{}

func (noHistory) List(context.Context, engine.Filter) ([]engine.Execution, error) { return nil, nil }

func (noHistory) Get(context.Context, engine.ID) (engine.Execution, error) {
	return engine.Execution{}, errors.New("there is none")
}

// newPlanner returns a planner of two nodes.
func newPlanner(running *sync.WaitGroup) *Planner {
	return New(Options{
		Self: "harbour", History: noHistory{}, Life: context.Background(), Go: running.Go, Logger: slog.New(slog.DiscardHandler),
		Others: func() []outboard.NodeID { return []outboard.NodeID{"dinghy"} },
		Workflow: func(_ context.Context, _ string, _ int, w *dsl.Workflow) (Workflow, error) {
			return Workflow{Workflow: w, Name: "w"}, nil
		},
	})
}

func parse(t *testing.T, do string) *dsl.Workflow {
	t.Helper()
	w, err := dsl.Parse("w.yaml", []byte("document: {dsl: '1.0.0', namespace: a, name: w, version: '1.0.0'}\ndo:\n"+do))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// calls returns tasks with a number of calls, beside each other.
func calls(n int) string {
	var branches strings.Builder
	for i := range n {
		fmt.Fprintf(&branches, "{b%d: {call: f}}, ", i)
	}
	return "{fork: {branches: [" + branches.String() + "]}}\n"
}

// TestLargeWorkflows: a search for the places of very many calls would take the processors for days.
func TestLargeWorkflows(t *testing.T) {
	for name, c := range map[string]struct {
		do    string
		large bool
	}{
		"as many calls as may be": {"- a: " + calls(maxSteps), false},
		"one more":                {"- a: " + calls(maxSteps+1), true},
		"many results":            {"- a: " + calls(65) + "- b: " + calls(64), true},
		"many calls and results":  {"- a: " + calls(4000) + "- b: " + calls(4000), true},
	} {
		var running sync.WaitGroup
		p, w := newPlanner(&running), parse(t, c.do)
		call := engine.FunctionCall{App: "app", Version: 1, Path: "a/b0", Workflow: w}
		if node := p.ChooseNode(&call); node != "" {
			t.Errorf("%s: before there is a plan: %q", name, node)
		}
		running.Wait()
		if ready := p.Ready("app", 1, w); ready == c.large {
			t.Errorf("%s: there is a plan: %v", name, ready)
		}
		running.Wait()
	}
}

// TestPlansAreDropped: plans of workflows that do not run any more are not kept.
func TestPlansAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		p := newPlanner(&running)
		used := parse(t, "- a: {call: f}\n")
		for range 100 {
			for _, w := range []*dsl.Workflow{used, parse(t, "- a: {call: f}\n")} {
				p.Ready("app", 1, w)
				synctest.Wait()
			}
			time.Sleep(time.Minute)
		}
		if n := len(p.plans); n > 20 {
			t.Errorf("%d plans are kept", n)
		}
		if !p.Ready("app", 1, used) {
			t.Error("the plan of a workflow that runs was dropped")
		}
		synctest.Wait()
	})
}
