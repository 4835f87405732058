package serve

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/model/queue"
)

// metrics are the metrics of the models on this node. The names that begin with nv_ are Triton's.
type metrics struct {
	server  *Server
	crashes *prometheus.CounterVec
	retries *prometheus.CounterVec
	// reverted counts the canaries that this node has reverted.
	reverted *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	queued   *prometheus.HistogramVec

	success, failure, count, executions, requestTime, queueTime, inputTime, computeTime, outputTime, pending, refused, stateUsage, parked *prometheus.Desc
}

func newMetrics(registry prometheus.Registerer, s *Server) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"model", "version"}, labels...), nil)
	}
	buckets := prometheus.ExponentialBuckets(50e-6, 4, 10)
	m := &metrics{
		server: s,
		crashes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_model_crashes_total",
			Help: "Processes of a model that ended by themselves or were killed.",
		}, []string{"model"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_model_retries_total",
			Help: "Requests that were tried again on another node.",
		}, []string{"model"}),
		reverted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_model_canaries_reverted_total",
			Help: "Canaries that this node has taken back, since their requests failed.",
		}, []string{"model"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outboard_model_request_seconds",
			Help: "Time of requests on this node, in the queue and computing.", Buckets: buckets,
		}, []string{"model"}),
		queued: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outboard_model_queue_seconds",
			Help: "Time of requests in the queue.", Buckets: buckets,
		}, []string{"model"}),
		success:     desc("nv_inference_request_success", "Requests that succeeded."),
		failure:     desc("nv_inference_request_failure", "Requests that failed, by reason.", "reason"),
		count:       desc("nv_inference_count", "Inferences: the rows of the requests that succeeded."),
		executions:  desc("nv_inference_exec_count", "Executions: batches."),
		requestTime: desc("nv_inference_request_duration_us", "Time of the requests that succeeded."),
		queueTime:   desc("nv_inference_queue_duration_us", "Time of these requests in the queue."),
		inputTime:   desc("nv_inference_compute_input_duration_us", "Time for copying their inputs to the engine."),
		computeTime: desc("nv_inference_compute_infer_duration_us", "Time of the executions of these requests."),
		outputTime:  desc("nv_inference_compute_output_duration_us", "Time for copying their outputs from the engine."),
		pending:     desc("nv_inference_pending_request_count", "Requests that wait."),
		refused:     desc("outboard_model_refused_total", "Requests that were refused at once, by reason.", "reason"),
		stateUsage:  desc("outboard_model_kv_cache_usage_perc", "Part of the memory for attention state that is in use: 1 means 100 percent."),
		parked:      desc("outboard_model_kv_cache_parked_bytes", "Cached attention state outside that memory."),
	}
	if registry != nil {
		registry.MustRegister(m, m.crashes, m.retries, m.reverted, m.latency, m.queued)
	}
	return m
}

func (m *metrics) observe(model string, _ int, times queue.Times, err error) {
	if err == nil {
		m.latency.WithLabelValues(model).Observe(times.Total().Seconds())
		m.queued.WithLabelValues(model).Observe(times.Queue.Seconds())
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.success, m.failure, m.count, m.executions, m.requestTime, m.queueTime, m.inputTime, m.computeTime, m.outputTime, m.pending, m.refused, m.stateUsage, m.parked} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, s := range m.server.Stats() {
		version := strconv.Itoa(s.Version)
		send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, kind, value, append([]string{s.Name, version}, labels...)...)
		}
		counter := prometheus.CounterValue
		send(m.success, counter, float64(s.Succeeded))
		send(m.failure, counter, float64(s.Failed), "OTHER")
		send(m.failure, counter, float64(s.Cancelled+s.Expired), "CANCELED")
		send(m.failure, counter, float64(s.RefusedFull+s.RefusedDeadline), "REJECTED")
		send(m.count, counter, float64(s.Rows))
		send(m.executions, counter, float64(s.Executions))
		send(m.requestTime, counter, float64(s.Total.Microseconds()))
		send(m.queueTime, counter, float64(s.Queue.Microseconds()))
		send(m.inputTime, counter, float64(s.In.Microseconds()))
		send(m.computeTime, counter, float64(s.Compute.Microseconds()))
		send(m.outputTime, counter, float64(s.Out.Microseconds()))
		send(m.pending, prometheus.GaugeValue, float64(s.Waiting))
		send(m.refused, counter, float64(s.RefusedFull+s.Text.RefusedFull), "full")
		send(m.refused, counter, float64(s.RefusedDeadline+s.Text.RefusedDeadline+s.Text.Late), "deadline")
		if s.Load != nil {
			send(m.stateUsage, prometheus.GaugeValue, s.Load.StateUsage)
			send(m.parked, prometheus.GaugeValue, float64(s.Load.ParkedBytes))
		}
	}
}
