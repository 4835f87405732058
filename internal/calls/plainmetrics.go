package calls

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/fabric/plain"
)

// newPlainRefusals returns the counter of calls and connections that the port for plain gRPC ends
// because of their client.
func newPlainRefusals() *prometheus.CounterVec {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outboard_fabric_plain_refused_total",
		Help: "Calls and connections of plain gRPC that the node ended because of their client, by the reason.",
	}, []string{"reason"})
	for _, reason := range plain.Reasons {
		refused.WithLabelValues(reason)
	}
	return refused
}

// registerPlain registers the metrics of the port for plain gRPC, unless to is nil.
func registerPlain(to prometheus.Registerer, s *plain.Server, refused *prometheus.CounterVec) {
	if to == nil {
		return
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outboard_fabric_plain_held_bytes", Help: "Bytes of messages of plain gRPC that the node holds.",
	}, func() float64 { return float64(s.HeldBytes()) })
	to.MustRegister(refused, held)
}
