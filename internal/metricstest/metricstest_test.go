package metricstest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestCompare(t *testing.T) {
	registry := prometheus.NewRegistry()
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calls_total", Help: "Calls."}, []string{"app"})
	registry.MustRegister(calls, prometheus.NewGauge(prometheus.GaugeOpts{Name: "open", Help: "Open."}))
	calls.WithLabelValues("shop").Add(2)
	calls.WithLabelValues("chat").Inc()
	const want = "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{app=\"chat\"} 1\ncalls_total{app=\"shop\"} 2\n"
	if err := Compare(registry, strings.NewReader(want), "calls_total"); err != nil {
		t.Error(err)
	}
	for name, other := range map[string]string{
		"another value":   strings.Replace(want, "} 2", "} 3", 1),
		"a metric less":   strings.Replace(want, "calls_total{app=\"shop\"} 2\n", "", 1),
		"another help":    strings.Replace(want, "Calls.", "Cells.", 1),
		"not the metrics": "{",
	} {
		if err := Compare(registry, strings.NewReader(other), "calls_total"); err == nil {
			t.Errorf("%s: no difference", name)
		}
	}
	if err := Compare(registry, strings.NewReader(want)); err == nil {
		t.Error("all metrics are those of one name")
	}
	if n, err := Count(registry, "calls_total"); n != 2 || err != nil {
		t.Errorf("got %d metrics, %v, want 2", n, err)
	}
	if n, err := Count(registry); n != 3 || err != nil {
		t.Errorf("got %d metrics of all names, %v, want 3", n, err)
	}
}
