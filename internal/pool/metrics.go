package pool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
)

// metrics are the pool's metrics. A nil Registerer leaves them unregistered.
type metrics struct {
	to       prometheus.Registerer
	acquires *prometheus.CounterVec
	seconds  prometheus.Histogram
	all      []prometheus.Collector
}

func newMetrics(to prometheus.Registerer, v *view, stored func() map[string]int64) (*metrics, error) {
	gauge := func(name, help string, f func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "outboard", Subsystem: "pool", Name: name, Help: help},
			func() float64 { return float64(f()) })
	}
	m := &metrics{
		to: to,
		acquires: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "outboard", Subsystem: "pool", Name: "acquires_total",
			Help: "Requests for leases that this node has made, by how they ended.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "outboard", Subsystem: "pool", Name: "acquire_seconds",
			Help:    "Time from a request to its leases, waiting included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
	}
	m.all = []prometheus.Collector{
		m.acquires, m.seconds,
		gauge("nodes", "Nodes in the pool.", func() int { return len(v.nodes()) }),
		gauge("devices", "Devices in the pool.", func() int { return len(v.devices()) }),
		gauge("leases", "Leases that stand.", func() int { return len(v.leases()) }),
		storedBytes{stored},
	}
	if to == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := to.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return nil, err
		}
	}
	return m, nil
}

// storedBytes is the metric of the bytes that each tenant stores in the state.
type storedBytes struct{ stored func() map[string]int64 }

var storedDesc = prometheus.NewDesc("outboard_pool_stored_bytes",
	"Bytes that the tenant is charged for what it keeps in the pool's state, by what passes this node.", []string{"tenant"}, nil)

// Describe implements prometheus.Collector.
func (storedBytes) Describe(to chan<- *prometheus.Desc) { to <- storedDesc }

// Collect implements prometheus.Collector.
func (s storedBytes) Collect(to chan<- prometheus.Metric) {
	for tenant, n := range s.stored() {
		to <- prometheus.MustNewConstMetric(storedDesc, prometheus.GaugeValue, float64(n), tenant)
	}
}

func (m *metrics) unregister() {
	if m.to == nil {
		return
	}
	for _, c := range m.all {
		m.to.Unregister(c)
	}
}

func (m *metrics) acquired(err error, took time.Duration) {
	result := "granted"
	if err != nil {
		result = outboard.KindOf(err).String()
	} else {
		m.seconds.Observe(took.Seconds())
	}
	m.acquires.WithLabelValues(result).Inc()
}
