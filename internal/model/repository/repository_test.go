package repository_test

import (
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

func open(t *testing.T) *repository.Repository {
	t.Helper()
	r, err := repository.Open(t.Context(), repository.Options{State: statetest.Open(t), Self: "harbour"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// push pushes versions of a model and returns the number of the last one.
func push(t *testing.T, r *repository.Repository, count int) int {
	t.Helper()
	var v repository.Version
	for range count {
		var err error
		v, err = r.Push(t.Context(), repository.Version{
			Name: "mlp", Engine: "onnx", Main: "mlp.onnx",
			Files: map[string]repository.File{"mlp.onnx": {Digest: "digest", Size: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return v.Number
}

// A version that no node can load is replaced by the one that was in force, and not by one that
// had been rolled back.
func TestWithdraw(t *testing.T) {
	r := open(t)
	push(t, r, 2)
	if _, err := r.Rollback(t.Context(), "mlp"); err != nil {
		t.Fatal(err)
	}
	if v, err := r.Withdraw(t.Context(), "mlp", push(t, r, 1)); err != nil || v.Number != 5 || v.Of != 1 {
		t.Errorf("version %d (as %d), %v: want 5 (as 1)", v.Number, v.Of, err)
	}
}

// Another client has pushed a good version by the time at which the first one turns out not to
// load: the good one stays.
func TestWithdrawLeavesLaterVersions(t *testing.T) {
	r := open(t)
	bad := push(t, r, 1)
	good := push(t, r, 1)
	if v, err := r.Withdraw(t.Context(), "mlp", bad); outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("version %d, %v", v.Number, err)
	}
	if err := r.Await(t.Context(), "mlp", good); err != nil {
		t.Fatal(err)
	}
	if m, err := r.Get("mlp"); err != nil || m.Current().Number != good {
		t.Errorf("in force: %+v, %v", m.Current(), err)
	}
	if v, err := r.Withdraw(t.Context(), "mlp", good); err != nil || v.Of != bad {
		t.Errorf("version %d (as %d), %v: want 3 (as %d)", v.Number, v.Of, err, bad)
	}
}

// The only version of a model leaves no model behind.
func TestWithdrawTheFirst(t *testing.T) {
	r := open(t)
	if v, err := r.Withdraw(t.Context(), "mlp", push(t, r, 1)); err != nil || v.Number != 0 {
		t.Errorf("version %d, %v", v.Number, err)
	}
	if _, err := r.Rollback(t.Context(), "mlp"); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("roll back a removed model: %v", err)
	}
}

// A roll-back of a canary, here with an old version, restores the version that has the other
// requests.
func TestRollbackOfCanary(t *testing.T) {
	r := open(t)
	push(t, r, 3)
	if _, err := r.Rollout(t.Context(), "mlp", 1, 50); err != nil {
		t.Fatal(err)
	}
	if v, err := r.Rollback(t.Context(), "mlp"); err != nil || v.Of != 3 || v.Canary != 0 {
		t.Errorf("version %d (as %d), %v: want 5 (as 3)", v.Number, v.Of, err)
	}
}
