package egress

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
)

// metrics count the requests. Their names begin with outboard_outgoing.
type metrics struct {
	requests *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, inFlight func() int) (*metrics, error) {
	m := &metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outboard_outgoing_requests_total",
		Help: "Outgoing HTTP requests of apps, by outcome: 2xx to 5xx, denied, busy, failed.",
	}, []string{"app", "outcome"})}
	if r == nil {
		return m, nil
	}
	if err := r.Register(m.requests); err != nil {
		return nil, err
	}
	return m, r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outboard_outgoing_requests_in_flight", Help: "Outgoing HTTP requests of apps that have no whole response yet.",
	}, func() float64 { return float64(inFlight()) }))
}

func (m *metrics) ended(app string, status int, err error) {
	outcome := strconv.Itoa(status/100) + "xx"
	if err != nil {
		switch outboard.KindOf(err) {
		case outboard.Denied:
			outcome = "denied"
		case outboard.Busy:
			outcome = "busy"
		default:
			outcome = "failed"
		}
	}
	m.requests.WithLabelValues(app, outcome).Inc()
}
