package serve

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/queue"
)

// A stage is a part of a request; a list of stages is in their order.
type stage struct {
	name string
	took time.Duration
}

// A requestSpan is the span of a request for a model on the node that executes it. A nil requestSpan
// records nothing.
type requestSpan struct {
	span   trace.Span
	tracer trace.Tracer
	ctx    context.Context //nolint:containedctx // of the stages' spans
	began  time.Time
}

// startSpan begins the span of a request, as a part of the trace in ctx.
func startSpan(ctx context.Context, i *instance) (context.Context, *requestSpan) {
	if i == nil || i.server.opts.Tracer == nil {
		return ctx, nil
	}
	r := &requestSpan{tracer: i.server.opts.Tracer, began: time.Now()}
	ctx, r.span = r.tracer.Start(ctx, "model "+i.spec.Name, trace.WithTimestamp(r.began), trace.WithAttributes(
		attribute.String("outboard.model", i.spec.Name), attribute.Int("outboard.version", i.version()), attribute.String("outboard.engine", i.spec.Engine),
	))
	r.ctx = ctx
	return ctx, r
}

// endInfer ends the span of a request for tensors. Its inputs are copied to the worker's memory, and
// its outputs from there.
func (r *requestSpan) endInfer(times queue.Times, err error) {
	r.end([]stage{{"queue", times.Queue}, {"copy in", times.In}, {"compute", times.Compute}, {"copy out", times.Out}}, err, attribute.Int("outboard.rows", times.Rows))
}

// endText ends the span of a generation, whose first token came after first, 0 if none came.
func (r *requestSpan) endText(u engine.Usage, first time.Duration, err error) {
	r.end([]stage{{"queue", u.Queued}, {"prefill", u.Prefill}, {"decode", u.Decode}}, err,
		attribute.Int("gen_ai.usage.input_tokens", u.PromptTokens), attribute.Int("gen_ai.usage.output_tokens", u.GeneratedTokens),
		attribute.Int("outboard.cached_tokens", u.CachedTokens), attribute.Float64("outboard.first_token_seconds", first.Seconds()))
}

// end records the stages one after the other, and ends the span.
func (r *requestSpan) end(stages []stage, err error, attributes ...attribute.KeyValue) {
	if r == nil {
		return
	}
	at := r.began
	for _, s := range stages {
		if s.took <= 0 {
			continue
		}
		_, span := r.tracer.Start(r.ctx, s.name, trace.WithTimestamp(at))
		at = at.Add(s.took)
		span.End(trace.WithTimestamp(at))
	}
	r.span.SetAttributes(attributes...)
	if err != nil {
		r.span.SetStatus(codes.Error, err.Error())
	}
	r.span.End()
}
