package gateway

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/quota"
)

// metrics are the gateway's metrics. A nil Registerer leaves them unregistered.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	sockets  *prometheus.GaugeVec
	dropped  *prometheus.CounterVec
	buffered prometheus.GaugeFunc
}

func newMetrics(to prometheus.Registerer, buffers *quota.Budget) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "outboard", Subsystem: "gateway", Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: counter("requests_total", "HTTP requests to apps, by the status of their answers.", "app", "route", "code"),
		calls:    counter("calls_total", "Calls that did not come as HTTP requests, by what started them and how they ended.", "app", "trigger", "route", "result"),
		dropped:  counter("websockets_dropped_total", "WebSockets that were closed because they did not read what was sent.", "app"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "outboard", Subsystem: "gateway", Name: "request_seconds",
			Help:    "Time from a request's head to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 4, 10),
		}, []string{"app", "route"}),
		buffered: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "outboard", Subsystem: "gateway", Name: "buffered_bytes",
			Help: "Bytes of requests and messages that are being read, wait for a function, or are worked on.",
		}, func() float64 { return float64(buffers.Held()) }),
		sockets: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "outboard", Subsystem: "gateway", Name: "websockets", Help: "WebSockets that are open.",
		}, []string{"app"}),
	}
	if err := m.register(to); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.seconds, m.calls, m.sockets, m.dropped, m.buffered}
}

func (m *metrics) unregister(from prometheus.Registerer) {
	if from == nil {
		return
	}
	for _, c := range m.all() {
		from.Unregister(c)
	}
}

func (m *metrics) register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	var errs []error
	for _, c := range m.all() {
		errs = append(errs, to.Register(c))
	}
	return errors.Join(errs...)
}

// forget drops an app's metrics.
func (m *metrics) forget(app string) {
	labels := prometheus.Labels{"app": app}
	m.requests.DeletePartialMatch(labels)
	m.seconds.DeletePartialMatch(labels)
	m.calls.DeletePartialMatch(labels)
	m.sockets.DeletePartialMatch(labels)
	m.dropped.DeletePartialMatch(labels)
}

// routeMetric holds the metrics of one route. It keeps the counters: a look-up by labels costs more
// than an increment.
type routeMetric struct {
	all     *metrics
	app     string
	route   string
	seconds prometheus.Observer
	codes   [6]atomic.Pointer[codeCounter] // the latest counter of each class of status codes
}

type codeCounter struct {
	code int
	prometheus.Counter
}

func (m *metrics) route(app, route string) *routeMetric {
	return &routeMetric{all: m, app: app, route: route, seconds: m.seconds.WithLabelValues(app, route)}
}

func (m *routeMetric) count(code int, took time.Duration) {
	counter := &m.codes[min(code/100, len(m.codes)-1)]
	c := counter.Load()
	if c == nil || c.code != code {
		c = &codeCounter{code, m.all.requests.WithLabelValues(m.app, m.route, strconv.Itoa(code))}
		counter.Store(c)
	}
	c.Inc()
	m.seconds.Observe(took.Seconds())
}
