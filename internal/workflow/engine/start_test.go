package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// countedState counts the claims and reads of an engine.
type countedState struct {
	engine.Claims
	engine.Log
	claims, reads atomic.Int64
}

func (s *countedState) Claim(ctx context.Context, id engine.ID) error {
	s.claims.Add(1)
	return s.Claims.Claim(ctx, id)
}

func (s *countedState) Read(ctx context.Context, key string) ([]state.Record, error) {
	s.reads.Add(1)
	return s.Log.Read(ctx, key)
}

// An execution whose name the engine makes reads nothing from the pool's state: each read costs as
// much as the record of a step. One that a client has named may have records.
func TestNewExecutionReadsNothing(t *testing.T) {
	s := &countedState{}
	w := open(t, echo, func(o *engine.Options) {
		s.Claims, s.Log = o.Claims, o.Log
		o.Claims, o.Log = s, s
	})
	id := w.start(`do: [{a: {call: f}}, {b: {call: f}}]`, `1`)
	if claims, reads := s.claims.Load(), s.reads.Load(); claims != 0 || reads != 0 {
		t.Errorf("%d claims that read, and %d reads: want none", claims, reads)
	}
	// Wait reads the records of an execution that has ended already.
	if got, err := w.engine.Wait(t.Context(), id); err != nil || got.Status != core.Completed {
		t.Fatal(got, err)
	}
	if _, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow", Name: "order-1"}); err != nil {
		t.Fatal(err)
	}
	if claims := s.claims.Load(); claims != 1 {
		t.Errorf("%d claims of an execution with a name of the client's: want 1", claims)
	}
}

// The name of an execution of another workflow is not taken for a request that was made before,
// while that runs and after it.
func TestStartNameOfAnotherWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		w.pool.Deploy("app", "flow", parse(t, `do: [{w: {wait: PT1M}}]`))
		w.pool.Deploy("app", "other", parse(t, `do: [{w: {wait: PT1M}}]`))
		req := engine.StartRequest{App: "app", Workflow: "flow", Name: "order-1"}
		id, err := w.engine.Start(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		check := func(when string) {
			t.Helper()
			if again, err := w.engine.Start(t.Context(), req); err != nil || again != id {
				t.Errorf("%s: again: %s, %v", when, again, err)
			}
			if _, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "other", Name: "order-1"}); outboard.KindOf(err) != outboard.Conflict {
				t.Errorf("%s: another workflow: %v", when, err)
			}
		}
		check("while it runs")
		if _, err := w.engine.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		check("after its end")
	})
}
