package repository_test

import (
	"slices"
	"strings"
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
	for _, missing := range []func() error{
		func() error { _, err := r.Rollout(t.Context(), "none", 1, 50); return err },
		func() error { _, err := r.Rollback(t.Context(), "none"); return err },
		func() error { return r.Remove(t.Context(), "none") },
	} {
		if err := missing(); outboard.KindOf(err) != outboard.NotFound || !strings.HasSuffix(err.Error(), `there is no model "none": there are mlp`) {
			t.Errorf("without such a model: %v", err)
		}
	}
	if _, err := r.Rollout(t.Context(), "mlp", 1, 50); err != nil {
		t.Fatal(err)
	}
	if v, err := r.Rollback(t.Context(), "mlp"); err != nil || v.Of != 3 || v.Canary != 0 {
		t.Errorf("version %d (as %d), %v: want 5 (as 3)", v.Number, v.Of, err)
	}
}

// Preceding is the version that a roll-back would restore.
func TestPreceding(t *testing.T) {
	r := open(t)
	for _, want := range []int{0, 1, 2} {
		if err := r.Await(t.Context(), "mlp", push(t, r, 1)); err != nil {
			t.Fatal(err)
		}
		m, err := r.Get("mlp")
		if v, ok := repository.Preceding(m); err != nil || ok != (want > 0) || v.Of != want {
			t.Errorf("got version %d, %v, %v: want %d", v.Of, ok, err, want)
		}
	}
	if v, err := r.Rollback(t.Context(), "mlp"); err != nil || v.Of != 2 {
		t.Errorf("roll back to version %d, %v: want 2", v.Of, err)
	}
}

// Names that models share are told at the push.
func TestOverlaps(t *testing.T) {
	r := open(t)
	version := func(name string, aliases ...string) repository.Version {
		return repository.Version{
			Name: name, Main: "m.onnx", Files: map[string]repository.File{"m.onnx": {Digest: "digest", Size: 1}}, Config: repository.Config{Aliases: aliases},
		}
	}
	v, err := r.Push(t.Context(), version("mlp", "digits", "first"))
	if err == nil {
		err = r.Await(t.Context(), "mlp", v.Number)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		push repository.Version
		want []string
	}{
		"nothing":         {version("other", "another"), nil},
		"itself":          {version("mlp", "digits"), nil},
		"a hidden alias":  {version("digits"), []string{"digits is an alias of the model mlp as well: requests for it go to this model now"}},
		"a model's name":  {version("other", "mlp"), []string{"the alias mlp has no effect: a model has that name"}},
		"an alias, later": {version("other", "digits"), []string{"digits is an alias of the models mlp and other: requests for it go to mlp"}},
		"an alias, first": {version("before", "digits"), []string{"digits is an alias of the models before and mlp: requests for it go to before"}},
	} {
		if got := r.Overlaps(&c.push); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A canary of the version in force would give the other requests to the version before, such as one
// that was rolled back.
func TestCanaryIsAnotherVersion(t *testing.T) {
	r := open(t)
	push(t, r, 2)
	if _, err := r.Rollback(t.Context(), "mlp"); err != nil {
		t.Fatal(err)
	}
	for _, number := range []int{1, 3} {
		if v, err := r.Rollout(t.Context(), "mlp", number, 50); outboard.KindOf(err) != outboard.Conflict {
			t.Errorf("a canary of version %d: version %d, %v", number, v.Number, err)
		}
	}
	for _, c := range []struct{ number, canary int }{{1, 0}, {2, 50}, {2, 70}, {2, 100}} {
		if v, err := r.Rollout(t.Context(), "mlp", c.number, c.canary); err != nil || v.Canary != c.canary {
			t.Errorf("%d %% of version %d: version %d, %v", c.canary, c.number, v.Number, err)
		}
	}
}
