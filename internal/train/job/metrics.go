package job

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/train/compress"
)

// Metrics counts the jobs of a node.
type Metrics struct {
	jobs     *prometheus.CounterVec
	restarts prometheus.Counter
	sums     *prometheus.CounterVec
	dropped  prometheus.Counter
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
		sums: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_train_compressed_bytes_total", Help: "Bytes of sums of gradients that jobs of this node have compressed between nodes: as they were, and as they were sent.",
		}, []string{"as"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outboard_train_dropped_parts_total", Help: "Parts of sums of gradients of 16 KiB that were dropped under congestion, of jobs that allow it.",
		}),
	}
	r.MustRegister(m.jobs, m.restarts, m.sums, m.dropped)
	return m
}

func (m *Metrics) ended(s client.JobState) {
	if m != nil {
		m.jobs.WithLabelValues(string(s)).Inc()
	}
}

func (m *Metrics) summed(t compress.Stats) {
	if m != nil {
		m.sums.WithLabelValues("plain").Add(float64(t.Bytes))
		m.sums.WithLabelValues("sent").Add(float64(t.Sent))
		m.dropped.Add(float64(t.Dropped))
	}
}

func (m *Metrics) restarted() {
	if m != nil {
		m.restarts.Inc()
	}
}
