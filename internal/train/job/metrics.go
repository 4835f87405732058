package job

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/client"
)

// Metrics counts the jobs of a node.
type Metrics struct {
	jobs     *prometheus.CounterVec
	restarts prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_train_jobs_total", Help: "Training jobs of this node that have ended, by state.",
		}, []string{"state"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outboard_train_restarts_total", Help: "Starts of the ranks of a job again, after the loss of a node.",
		}),
	}
	r.MustRegister(m.jobs, m.restarts)
	return m
}

func (m *Metrics) ended(s client.JobState) {
	if m != nil {
		m.jobs.WithLabelValues(string(s)).Inc()
	}
}

func (m *Metrics) restarted() {
	if m != nil {
		m.restarts.Inc()
	}
}
