package textpool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// metrics are metrics with vLLM's names, with the prefix of the pool's metrics.
type metrics struct {
	prompt, cached, generated *prometheus.CounterVec
	finished                  *prometheus.CounterVec
	resumed                   *prometheus.CounterVec
	running                   *prometheus.GaugeVec
	first, between, whole     *prometheus.HistogramVec
	queued, prefill, decode   *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "outboard", Subsystem: "model", Name: name, Help: help}, append([]string{"model_name"}, labels...))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "outboard", Subsystem: "model", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14),
		}, []string{"model_name"})
	}
	m := &metrics{
		prompt:    counter("prompt_tokens_total", "Tokens of prompts."),
		cached:    counter("prefix_cache_hits_total", "Tokens of prompts whose state was reused."),
		generated: counter("generation_tokens_total", "Tokens that were generated."),
		finished:  counter("request_success_total", "Generations that ended, by their reason.", "finished_reason"),
		resumed:   counter("generations_resumed_total", "Generations that went on from another node."),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "outboard", Subsystem: "model", Name: "num_requests_running", Help: "Generations under way or queued, that this node accepted."},
			[]string{"model_name"}),
		first:   histogram("time_to_first_token_seconds", "Time until the first token."),
		between: histogram("inter_token_latency_seconds", "Time between tokens."),
		whole:   histogram("e2e_request_latency_seconds", "Time until the last token."),
		queued:  histogram("request_queue_time_seconds", "Time in the engine's queue."),
		prefill: histogram("request_prefill_time_seconds", "Time to compute the prompt."),
		decode:  histogram("request_decode_time_seconds", "Time from the first token to the last."),
	}
	if r != nil {
		r.MustRegister(m.prompt, m.cached, m.generated, m.finished, m.resumed, m.running, m.first, m.between, m.whole, m.queued, m.prefill, m.decode)
	}
	return m
}

// A watch measures one generation.
type watch struct {
	m           *metrics
	name        string
	start, last time.Time
	finish      engine.FinishReason
}

func (m *metrics) startGeneration(name string) *watch {
	m.running.WithLabelValues(name).Inc()
	return &watch{m: m, name: name, start: time.Now()}
}

func (w *watch) token(t engine.Token) {
	now := time.Now()
	if w.last.IsZero() {
		w.m.first.WithLabelValues(w.name).Observe(now.Sub(w.start).Seconds())
	} else {
		w.m.between.WithLabelValues(w.name).Observe(now.Sub(w.last).Seconds())
	}
	w.last, w.finish = now, t.Last
}

func (w *watch) end(u engine.Usage) {
	m := w.m
	m.running.WithLabelValues(w.name).Dec()
	reason := string(w.finish)
	if reason == "" {
		reason = "abort"
	}
	m.finished.WithLabelValues(w.name, reason).Inc()
	m.prompt.WithLabelValues(w.name).Add(float64(u.PromptTokens))
	m.cached.WithLabelValues(w.name).Add(float64(u.CachedTokens))
	m.generated.WithLabelValues(w.name).Add(float64(u.GeneratedTokens))
	m.whole.WithLabelValues(w.name).Observe(time.Since(w.start).Seconds())
	m.queued.WithLabelValues(w.name).Observe(u.Queued.Seconds())
	m.prefill.WithLabelValues(w.name).Observe(u.Prefill.Seconds())
	m.decode.WithLabelValues(w.name).Observe(u.Decode.Seconds())
}
