package lend

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/accel/lend/fake"
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

// openHost opens a host whose workers are fakes.
func openHost(t *testing.T, s Sandbox) *Host {
	t.Helper()
	h, err := Open(t.Context(), Options{Dir: t.TempDir(), Command: []string{os.Args[0], "fake-worker"}, Sandbox: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func specOf(program string) Spec {
	return Spec{Lease: leaseOf("holder", program), Device: outboard.Device{API: outboard.OpenCL}}
}

// TestCompileSteps: what a compile step has written is in the cache that the next session of the
// program gets, but nothing of a step that has failed. Nothing that it started remains.
func TestCompileSteps(t *testing.T) {
	h := openHost(t, Sandbox{})
	for recipes, want := range map[string]bool{"three kernels": true, fake.Child: true, fake.Fail: false, fake.Crash: false} {
		job := &compileJob{spec: specOf(recipes), recipes: recipesFile(t, recipes), limit: minCompileLimit}
		if err := h.compiles.buildGeneration(t.Context(), job); (err == nil) != want {
			t.Errorf("%q: %v", recipes, err)
		}
		next := acquire(t, &h.caches, job.spec.Lease)
		text, err := os.ReadFile(filepath.Join(next.dir, fake.Compiled))
		if got := err == nil && string(text) == recipes; got != want {
			t.Errorf("%q: the cache has %q, %v", recipes, text, err)
		}
		h.caches.release(next)
		if err := syscall.Kill(-job.process.pid(), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%q: its process group remains: %v", recipes, err)
		}
	}
}

// TestCompileStepIsEnded: a step that hangs does not hold up the node's end, and one that fills the disk
// is ended.
func TestCompileStepIsEnded(t *testing.T) {
	for name, end := range map[string]func(*compiles){"close": (*compiles).close, "watch": (*compiles).watch} {
		t.Run(name, func(t *testing.T) {
			h := openHost(t, Sandbox{Cache: 1})
			c, spec := h.compiles, specOf("hangs")
			cache := acquire(t, &h.caches, spec.Lease)
			c.enqueue(&Session{Spec: spec, cache: cache, recipes: recipesFile(t, fake.Hang)})
			for !c.hasWritten() && c.isQueued(cache.name) { // the host watches, too
				_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
			}
			end(c)
			for c.isQueued(cache.name) {
				_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
			}
		})
	}
}

// hasWritten reports whether the step that runs has written its file.
func (c *compiles) hasWritten() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current != nil && sizeOf(c.current.draft.dir) > 2*c.host.caches.limit
}

func (c *compiles) isQueued(cache string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued[cache]
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

// A job gets as much time as its session needed, at its lower weight, within bounds.
func TestCompileLimitFollowsTheSession(t *testing.T) {
	for session, want := range map[time.Duration]time.Duration{0: 2 * time.Minute, 3 * time.Minute: 12 * time.Minute, time.Hour: 30 * time.Minute} {
		if got := compileLimit(session); got != want {
			t.Errorf("%v after a session of %v, want %v", got, session, want)
		}
	}
}
