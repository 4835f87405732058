package lend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/metricstest"
)

// A compile step counts from the moment that its session hands it over, at most one for each cache. A
// session without recipes has none.
func TestCompileStepsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry, func() int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	c := &compiles{host: &Host{metrics: m}, jobs: make(chan *compileJob, maxCompileJobs), queued: map[string]bool{}}
	for _, session := range []struct {
		cache, recipes string
		want           bool
	}{{"a", "recipe", true}, {"a", "recipe", false}, {"b", "recipe", true}, {"c", "", false}} {
		if got := c.accept(&compileJob{cache: cacheUse{name: session.cache}, recipes: recipesFile(t, session.recipes)}); got != session.want {
			t.Errorf("a session of %s with %q: accepted %v, want %v", session.cache, session.recipes, got, session.want)
		}
	}
	err = metricstest.Compare(registry, strings.NewReader(`
		# HELP outboard_accel_compile_steps Compile steps that wait or run: they fill programs' caches of compiled kernels after sessions.
		# TYPE outboard_accel_compile_steps gauge
		outboard_accel_compile_steps 2
	`), "outboard_accel_compile_steps")
	if err != nil {
		t.Error(err)
	}
}

// A session records what its driver compiles only where a compile step can use it.
func TestRecipesAreForLayeredCaches(t *testing.T) {
	for _, layered := range []bool{false, true} {
		for _, off := range []bool{false, true} {
			h := &Host{isolation: control.Isolation{Layered: layered}, opts: Options{Sandbox: Sandbox{NoCache: off}}}
			recipes := h.newRecipes()
			if got, want := recipes != nil, layered && !off; got != want {
				t.Errorf("layered %v, turned off %v: recipes %v, want %v", layered, off, got, want)
			}
			_ = recipes.Close()
		}
	}
}

func recipesFile(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recipes")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
