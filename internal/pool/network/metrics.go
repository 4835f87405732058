package network

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// metrics are the measurements for Prometheus.
type metrics struct {
	rtt, loss     *prometheus.GaugeVec
	bandwidth     *prometheus.GaugeVec
	bytes, failed prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outboard_network_" + name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "outboard_network_" + name, Help: help})
	}
	m := &metrics{
		rtt:       gauge("rtt_seconds", "Median round-trip time of the last probes of a node.", "peer"),
		loss:      gauge("loss_ratio", "Part of the packets to a node that were sent again.", "peer"),
		bandwidth: gauge("bandwidth_bytes_per_second", "Bandwidth to a node (forward) and back, as short bursts measure it.", "peer", "direction"),
		bytes:     counter("probe_bytes_total", "Bytes that this node's probes have cost, both directions together."),
		failed:    counter("probes_failed_total", "Probes without an answer."),
	}
	if r != nil {
		for _, c := range m.collectors() {
			r.MustRegister(c)
		}
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.rtt, m.loss, m.bandwidth, m.bytes, m.failed}
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.collectors() {
		r.Unregister(c)
	}
}

func (m *metrics) set(l client.Link) {
	peer := string(l.To)
	m.rtt.WithLabelValues(peer).Set(l.RTT.Seconds())
	m.loss.WithLabelValues(peer).Set(l.Loss)
	m.bandwidth.WithLabelValues(peer, "forward").Set(l.Forward)
	m.bandwidth.WithLabelValues(peer, "backward").Set(l.Backward)
}

func (m *metrics) remove(peer outboard.NodeID) {
	match := prometheus.Labels{"peer": string(peer)}
	m.rtt.DeletePartialMatch(match)
	m.loss.DeletePartialMatch(match)
	m.bandwidth.DeletePartialMatch(match)
}

// Sort orders links by their nodes.
func Sort(links []client.Link) {
	slices.SortFunc(links, func(a, b client.Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
}
