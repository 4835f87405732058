package router

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// descs are the metrics' descriptions.
type descs struct {
	calls, seconds, bytes, inFlight, peers, policies, endpoints, outstanding, extra *prometheus.Desc
}

func newDescs() *descs {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("outboard_fabric_"+name, help, labels, nil)
	}
	return &descs{
		calls:       d("calls_total", "Calls that have ended, by status.", "service", "method", "code"),
		seconds:     d("call_seconds", "How long calls took.", "service", "method"),
		bytes:       d("call_bytes_total", "Bytes of messages, to and from endpoints.", "service", "method", "direction"),
		inFlight:    d("calls_in_flight", "Calls that have begun and not ended.", "service", "method"),
		peers:       d("peer_calls_total", "Calls that have ended, by caller.", "peer", "result"),
		policies:    d("policy_calls_total", "Calls that a policy did something to.", "service", "method", "policy"),
		endpoints:   d("endpoint_calls_total", "Attempts that have ended, by endpoint.", "service", "endpoint", "result"),
		outstanding: d("endpoint_calls_in_flight", "Attempts in flight, by endpoint.", "service", "endpoint"),
		extra:       d("extra_calls_total", "Calls that policies added: retries, hedges, mirrors, and mirrors dropped.", "kind"),
	}
}

// collector exports a router's counters to Prometheus. It reads them when Prometheus collects, so
// that a call costs only the additions.
type collector struct {
	*descs
	router *Router
}

func (r *Router) register() {
	if r.options.Registerer == nil {
		return
	}
	// A second router at one Registerer exports no metrics; it works all the same.
	if err := r.options.Registerer.Register(&collector{newDescs(), r}); err != nil {
		r.options.Logger.Warn("metrics refused", "error", err)
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.calls, c.seconds, c.bytes, c.inFlight, c.peers, c.policies, c.endpoints, c.outstanding, c.extra} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, m := range c.router.stats.methods.all() {
		c.method(to, m)
	}
	for name, p := range c.router.stats.peers.all() {
		count(to, c.peers, p.good.Load(), name, "ok")
		count(to, c.peers, p.bad.Load(), name, "error")
	}
	for _, s := range *c.router.services.Load() {
		c.service(to, s)
	}
	s := c.router.stats
	count(to, c.extra, s.retries.Load(), "retry")
	count(to, c.extra, s.hedges.Load(), "hedge")
	count(to, c.extra, s.mirrors.Load(), "mirror")
	count(to, c.extra, s.dropped.Load(), "mirror_dropped")
}

func count(to chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (c *collector) method(to chan<- prometheus.Metric, m *method) {
	for code := range m.codes {
		if n := m.codes[code].Load(); n > 0 {
			count(to, c.calls, n, m.service, m.name, codes.Code(code).String())
		}
	}
	count(to, c.bytes, m.sent.Load(), m.service, m.name, "sent")
	count(to, c.bytes, m.received.Load(), m.service, m.name, "received")
	to <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(m.inFlight.Load()), m.service, m.name)
	for name, n := range m.acted.all() {
		count(to, c.policies, n.Load(), m.service, m.name, name)
	}
	total, cumulative := uint64(0), make(map[float64]uint64, len(bounds))
	for i, b := range bounds {
		total += m.times[i].Load()
		cumulative[b.Seconds()] = total
	}
	total += m.times[len(bounds)].Load()
	took := float64(m.took.Load()) / 1e9
	to <- prometheus.MustNewConstHistogram(c.seconds, total, took, cumulative, m.service, m.name)
}

func (c *collector) service(to chan<- prometheus.Metric, s *service) {
	c.router.mu.Lock()
	endpoints := maps.Clone(s.endpoints)
	c.router.mu.Unlock()
	for id, e := range endpoints {
		count(to, c.endpoints, e.good.Load(), s.name, id, "ok")
		count(to, c.endpoints, e.bad.Load(), s.name, id, "error")
		to <- prometheus.MustNewConstMetric(c.outstanding, prometheus.GaugeValue, float64(e.calls.Load()), s.name, id)
	}
}
