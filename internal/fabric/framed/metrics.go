package framed

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
)

// metrics are the numbers of all connections that share a Registerer. It is the
// collector itself: gauges are counted when somebody asks.
type metrics struct {
	mu   sync.Mutex
	live map[*Conn]bool

	sent, received atomic.Uint64
	began, ended   *prometheus.CounterVec
	trips          prometheus.Histogram
}

var (
	connectionsDesc = prometheus.NewDesc("outboard_fabric_connections", "Connections that are open.", nil, nil)
	streamsDesc     = prometheus.NewDesc("outboard_fabric_streams", "Streams that are open.", nil, nil)
	bytesDesc       = prometheus.NewDesc("outboard_fabric_bytes_total",
		"Bytes on the wire, encryption included, by direction.", []string{"direction"}, nil)
)

func newMetrics() *metrics {
	return &metrics{
		live: make(map[*Conn]bool),
		began: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_fabric_streams_total", Help: "Streams that began, by which side opened them.",
		}, []string{"side"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_fabric_connections_ended_total",
			Help: "Connections that ended, by how: closed, refused in the handshake, or the kind of the error.",
		}, []string{"end"}),
		trips: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outboard_fabric_round_trip_seconds", Help: "Round-trip times of pings.",
			Buckets: prometheus.ExponentialBuckets(25e-6, 4, 10),
		}),
	}
}

// metricsOf returns the metrics that are registered with to, registering them
// the first time; nil without a Registerer.
func metricsOf(to prometheus.Registerer) *metrics {
	if to == nil {
		return nil
	}
	m := newMetrics()
	err := to.Register(m)
	if before, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if known, ok := before.ExistingCollector.(*metrics); ok {
			return known
		}
	}
	// A Registerer that refuses them leaves them uncollected.
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- connectionsDesc
	to <- streamsDesc
	to <- bytesDesc
	m.began.Describe(to)
	m.ended.Describe(to)
	m.trips.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	connections, streams := m.count()
	to <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(connections))
	to <- prometheus.MustNewConstMetric(streamsDesc, prometheus.GaugeValue, float64(streams))
	to <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(m.sent.Load()), "sent")
	to <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(m.received.Load()), "received")
	m.began.Collect(to)
	m.ended.Collect(to)
	m.trips.Collect(to)
}

func (m *metrics) count() (connections, streams int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.live {
		c.mu.Lock()
		streams += len(c.streams)
		c.mu.Unlock()
	}
	return len(m.live), streams
}

// Each method below does nothing without metrics.

func (m *metrics) opened(c *Conn) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[c] = true
}

// closed notes the end of a connection; agreed says that its handshake was over.
func (m *metrics) closed(c *Conn, err error, agreed bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	delete(m.live, c)
	m.mu.Unlock()
	end := outboard.KindOf(err).String()
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, errGoodbye):
		end = "closed"
	case !agreed:
		end = "refused"
	}
	m.ended.WithLabelValues(end).Inc()
}

func (m *metrics) stream(own bool) {
	if m == nil {
		return
	}
	side := "peer"
	if own {
		side = "own"
	}
	m.began.WithLabelValues(side).Inc()
}

func (m *metrics) trip(nanoseconds int64) {
	if m != nil {
		m.trips.Observe(float64(nanoseconds) / 1e9)
	}
}

func (m *metrics) wrote(n int) {
	if m != nil && n > 0 {
		m.sent.Add(uint64(n))
	}
}

func (m *metrics) read(n int) {
	if m != nil && n > 0 {
		m.received.Add(uint64(n))
	}
}
