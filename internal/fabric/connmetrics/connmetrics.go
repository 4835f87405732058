// Package connmetrics counts framed connections for Prometheus, as outboard_fabric_*: connections,
// streams, bytes each way, round trips, and the ends of connections.
package connmetrics

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// metrics holds the counters of all connections that share a Registerer. It is the collector
// itself: gauges are computed when Prometheus scrapes them.
type metrics struct {
	mu   sync.Mutex
	live map[*framed.Conn]bool

	sent, received  atomic.Uint64
	streams, closed *prometheus.CounterVec
	roundTrips      prometheus.Histogram
}

var (
	_ framed.Observer      = (*metrics)(nil)
	_ prometheus.Collector = (*metrics)(nil)
)

var (
	connectionsDesc = prometheus.NewDesc("outboard_fabric_connections", "Connections that are open.", nil, nil)
	streamsDesc     = prometheus.NewDesc("outboard_fabric_streams", "Streams that are open.", nil, nil)
	bytesDesc       = prometheus.NewDesc("outboard_fabric_bytes_total",
		"Bytes on the wire, encryption included, by direction.", []string{"direction"}, nil)
)

func newMetrics() *metrics {
	return &metrics{
		live: make(map[*framed.Conn]bool),
		streams: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_fabric_streams_total", Help: "Streams that began, by which side opened them.",
		}, []string{"side"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_fabric_connections_ended_total",
			Help: "Connections that ended, by how: closed, refused in the handshake, or the kind of the error.",
		}, []string{"end"}),
		roundTrips: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outboard_fabric_round_trip_seconds", Help: "Round-trip times of pings.",
			Buckets: prometheus.ExponentialBuckets(25e-6, 4, 10),
		}),
	}
}

// Observer returns the Observer whose counters are registered with to; the connections of one
// Registerer are counted together. The first call registers the collector, which stays registered.
// With a nil Registerer the result is nil, which observes nothing.
func Observer(to prometheus.Registerer) framed.Observer {
	if to == nil {
		return nil
	}
	m := newMetrics()
	err := to.Register(m)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if known, ok := already.ExistingCollector.(*metrics); ok {
			return known
		}
	}
	// The counters are not collected if the Registerer refuses them.
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- connectionsDesc
	to <- streamsDesc
	to <- bytesDesc
	m.streams.Describe(to)
	m.closed.Describe(to)
	m.roundTrips.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	connections, streams := m.count()
	to <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(connections))
	to <- prometheus.MustNewConstMetric(streamsDesc, prometheus.GaugeValue, float64(streams))
	to <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(m.sent.Load()), "sent")
	to <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(m.received.Load()), "received")
	m.streams.Collect(to)
	m.closed.Collect(to)
	m.roundTrips.Collect(to)
}

func (m *metrics) count() (connections, streams int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.live {
		streams += c.OpenStreams()
	}
	return len(m.live), streams
}

// ConnOpened implements framed.Observer.
func (m *metrics) ConnOpened(c *framed.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[c] = true
}

// ConnClosed implements framed.Observer.
func (m *metrics) ConnClosed(c *framed.Conn, end string) {
	m.mu.Lock()
	delete(m.live, c)
	m.mu.Unlock()
	m.closed.WithLabelValues(end).Inc()
}

// StreamOpened implements framed.Observer.
func (m *metrics) StreamOpened(local bool) {
	side := "peer"
	if local {
		side = "own"
	}
	m.streams.WithLabelValues(side).Inc()
}

// RoundTrip implements framed.Observer.
func (m *metrics) RoundTrip(d time.Duration) { m.roundTrips.Observe(d.Seconds()) }

// BytesSent implements framed.Observer.
func (m *metrics) BytesSent(n int) { m.sent.Add(uint64(n)) }

// BytesReceived implements framed.Observer.
func (m *metrics) BytesReceived(n int) { m.received.Add(uint64(n)) }
