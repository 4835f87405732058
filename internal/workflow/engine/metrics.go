package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/workflow/core"
)

// metrics are the engine's metrics. A nil Registerer leaves them unregistered.
type metrics struct {
	to       prometheus.Registerer
	started  prometheus.Counter
	refused  prometheus.Counter
	finished *prometheus.CounterVec
	taken    prometheus.Counter
	lost     prometheus.Counter
	steps    *prometheus.CounterVec
	took     prometheus.Histogram
	handover prometheus.Histogram
	appends  prometheus.Histogram
	early    prometheus.Counter
	bytes    *prometheus.CounterVec
	all      []prometheus.Collector
}

func newMetrics(to prometheus.Registerer, held, running func() int) (*metrics, error) {
	gauge := func(name, help string, f func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts(options(name, help)), func() float64 { return float64(f()) })
	}
	m := &metrics{
		to:       to,
		started:  counter("started_total", "Executions that were accepted."),
		refused:  counter("refused_total", "Executions that were refused because too many were there."),
		finished: counters("finished_total", "Executions that ended here, by how.", "status"),
		taken:    counter("taken_total", "Executions that were taken over from a node that left."),
		lost:     counter("lost_total", "Executions that another node has taken over."),
		steps:    counters("steps_total", "Calls of steps, by how they ended.", "result"),
		took:     histogram("step_seconds", "How long calls of steps took."),
		handover: histogram("handover_seconds", "Time from the end of a step to the beginning of the next one."),
		appends:  histogram("append_seconds", "How long appends to the log took."),
		early:    counter("early_calls_total", "Calls that began while a value before them was being saved."),
		bytes:    counters("bytes_total", "Bytes that steps were handed and handed on.", "way"),
	}
	m.all = []prometheus.Collector{
		m.started, m.refused, m.finished, m.taken, m.lost, m.steps, m.took, m.handover, m.appends, m.early, m.bytes,
		gauge("held", "Executions that are here: running, waiting and queued.", held),
		gauge("running", "Executions that run.", running),
	}
	if err := m.register(); err != nil {
		return nil, err
	}
	return m, nil
}

func options(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: "outboard", Subsystem: "workflow", Name: name, Help: help}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(options(name, help)))
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(options(name, help)), []string{label})
}

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "outboard", Subsystem: "workflow", Name: name, Help: help,
		Buckets: prometheus.ExponentialBuckets(0.000_01, 4, 12),
	})
}

func (m *metrics) register() error {
	if m.to == nil {
		return nil
	}
	for i, c := range m.all {
		if err := m.to.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return err
		}
	}
	return nil
}

func (m *metrics) unregister() {
	if m.to == nil {
		return
	}
	for _, c := range m.all {
		m.to.Unregister(c)
	}
}

func (m *metrics) stepped(s *core.Step, run Run, took time.Duration) {
	result := "done"
	if s.Error != nil {
		result = "failed"
	}
	m.steps.WithLabelValues(result).Inc()
	m.took.Observe(took.Seconds())
	m.bytes.WithLabelValues("pointer").Add(float64(run.Pointer))
	m.bytes.WithLabelValues("copy").Add(float64(run.Copied))
}
