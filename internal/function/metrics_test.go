package function

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/outboard-run/outboard/internal/metricstest"
)

// TestMetrics calls two versions of a function, one after the other, and reads what came of it.
func TestMetrics(t *testing.T) {
	metrics := prometheus.NewPedanticRegistry()
	r := open(t, Options{Metrics: metrics})
	var good, bad, refused script
	good.do("arena_alloc", 16)
	bad.do("trap")
	refused.do("fail", 1)
	for range 2 {
		f := deployPuppet(t, r, Limits{Queue: -1, Concurrency: 1})
		a := newArena(t, 8192)
		perform(t, f, &good, Request{Arena: a})
		for _, s := range []script{bad, refused} {
			if _, err := f.Call(t.Context(), Request{Body: s.body()}); err == nil {
				t.Error("no error")
			}
		}
		f.admission.running <- struct{}{}
		if _, err := f.Call(t.Context(), Request{}); err == nil {
			t.Error("no error")
		}
		f.admission.release()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	f := deployPuppet(t, r, Limits{})
	perform(t, f, &good, Request{})
	want := `
# HELP outboard_function_failures_total Calls that failed, by cause.
# TYPE outboard_function_failures_total counter
outboard_function_failures_total{cause="caller",function="app/puppet"} 0
outboard_function_failures_total{cause="function",function="app/puppet"} 2
outboard_function_failures_total{cause="limit",function="app/puppet"} 0
outboard_function_failures_total{cause="trap",function="app/puppet"} 2
# HELP outboard_function_idle_slots Instances that wait for calls.
# TYPE outboard_function_idle_slots gauge
outboard_function_idle_slots{function="app/puppet"} 1
# HELP outboard_function_refused_total Calls beyond the queue.
# TYPE outboard_function_refused_total counter
outboard_function_refused_total{function="app/puppet"} 2
# HELP outboard_function_starts_total Instances that calls began with: cold ones were initialised at deploy, cloned ones are new, reset ones served before.
# TYPE outboard_function_starts_total counter
outboard_function_starts_total{function="app/puppet",start="cloned"} 3
outboard_function_starts_total{function="app/puppet",start="cold"} 3
outboard_function_starts_total{function="app/puppet",start="reset"} 4
# HELP outboard_function_window_maps_total Mappings that the windows of instances needed.
# TYPE outboard_function_window_maps_total counter
outboard_function_window_maps_total{function="app/puppet"} 4
`
	names := []string{"failures_total", "idle_slots", "refused_total", "starts_total", "window_maps_total"}
	for i, name := range names {
		names[i] = "outboard_function_" + name
	}
	if err := metricstest.Compare(metrics, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n, err := metricstest.Count(metrics); err != nil || n < 15 {
		t.Errorf("%d metrics, %v", n, err)
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if _, err := Open(t.Context(), Options{Metrics: metrics}); err == nil {
		t.Error("two runtimes share their metrics")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n, err := metricstest.Count(metrics); err != nil || n != 0 {
		t.Errorf("%d metrics after the end, %v", n, err)
	}
}

func TestIdle(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	var s script
	s.do("store", puppetScratch, 1)
	s.do("store", puppetWindow, 1)
	a := newArena(t, 8192)
	perform(t, f, &s, Request{Arena: a})
	slots, memory := f.Idle()
	if want := f.version.runtime.resets.Method().String() == "scan"; slots != 1 || (memory > 0) != want || memory > 16<<10 {
		t.Errorf("%d slots with %v", slots, memory)
	}
}
