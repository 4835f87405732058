package lend

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count the sessions of a device's node.
type metrics struct {
	registry prometheus.Registerer
	started  prometheus.Counter
	ended    *prometheus.CounterVec
	seconds  prometheus.Histogram
	live     prometheus.GaugeFunc
	compiles prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, live func() int) (*metrics, error) {
	m := &metrics{
		registry: registry,
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outboard_accel_sessions_started_total", Help: "Sessions whose worker started.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_accel_sessions_ended_total", Help: "Sessions that ended, by how.",
		}, []string{"end"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outboard_accel_session_seconds", Help: "How long sessions lived.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}),
		live: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outboard_accel_sessions", Help: "Sessions that live.",
		}, func() float64 { return float64(live()) }),
		compiles: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_accel_compile_steps", Help: "Compile steps that wait or run: they fill programs' caches of compiled kernels after sessions.",
		}),
	}
	var errs []error
	for _, c := range m.all() {
		errs = append(errs, registry.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.started, m.ended, m.seconds, m.live, m.compiles}
}

func (m *metrics) unregister() {
	for _, c := range m.all() {
		m.registry.Unregister(c)
	}
}
