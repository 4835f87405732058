package node

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/health"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// A healthSource is a plane that reports its health. Health returns nil while the plane works, and
// does not block.
type healthSource interface{ Health() error }

// membershipHealth reports whether the node still belongs to its pool.
type membershipHealth struct{ identity *authority.Identity }

// Health implements healthSource.
func (m membershipHealth) Health() error { return authority.CheckMembership(m.identity) }

// healthReport collects the health of the planes.
type healthReport struct {
	board   *health.Board
	sources map[string]healthSource // by plane
}

// problems lists the problems of the planes.
func (h *healthReport) problems() []client.HealthProblem {
	if h == nil {
		return nil // the node is starting
	}
	for plane, source := range h.sources {
		h.board.Report(plane, source.Health())
	}
	all := []client.HealthProblem{}
	for _, p := range h.board.Problems() {
		all = append(all, client.HealthProblem{Part: p.Part, Text: p.Text, Since: p.Since.Truncate(time.Millisecond)})
	}
	return all
}

// ServeHTTP implements http.Handler: 200 and "ok", or 503 and the problems.
func (h *healthReport) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	problems := h.problems()
	w.Header().Set("Content-Type", "application/json")
	if len(problems) == 0 {
		_ = json.NewEncoder(w).Encode("ok") // the client hung up
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]any{"problems": problems}) // the client hung up
}

// Describe implements prometheus.Collector.
func (h *healthReport) Describe(to chan<- *prometheus.Desc) { to <- problemDesc }

// Collect implements prometheus.Collector.
func (h *healthReport) Collect(to chan<- prometheus.Metric) {
	for _, p := range h.problems() {
		to <- prometheus.MustNewConstMetric(problemDesc, prometheus.GaugeValue, 1, p.Part)
	}
}

var problemDesc = prometheus.NewDesc("outboard_node_problem", "1 for each part of the node that does not work.", []string{"part"}, nil)
