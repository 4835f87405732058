package calls

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/metricstest"
)

type noHandler struct{ call.Handler }

// The metrics of the port for plain gRPC are there from the beginning.
func TestPlainMetrics(t *testing.T) {
	registry, refused := prometheus.NewRegistry(), newPlainRefusals()
	s := plain.NewServer(noHandler{}, plain.Options{})
	defer s.Stop()
	registerPlain(registry, s, refused)
	registerPlain(nil, s, refused)
	refused.WithLabelValues("memory").Inc()
	const want = `# HELP outboard_fabric_plain_held_bytes Bytes of messages of plain gRPC that the node holds.
# TYPE outboard_fabric_plain_held_bytes gauge
outboard_fabric_plain_held_bytes 0
# HELP outboard_fabric_plain_refused_total Calls and connections of plain gRPC that the node ended because of their client, by the reason.
# TYPE outboard_fabric_plain_refused_total counter
outboard_fabric_plain_refused_total{reason="calls"} 0
outboard_fabric_plain_refused_total{reason="connections"} 0
outboard_fabric_plain_refused_total{reason="memory"} 1
outboard_fabric_plain_refused_total{reason="slow_request"} 0
outboard_fabric_plain_refused_total{reason="slow_response"} 0
`
	if err := metricstest.Compare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
