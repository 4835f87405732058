package serve_test

import (
	"slices"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// A request has a span with one for each of its stages, in the trace of its caller.
func TestSpans(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	b := openWith(t, func(o *serve.Options) { o.Tracer = provider.Tracer("test") })
	b.push("a", repository.Config{})
	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	if _, err := b.Infer(ctx, b.request(0)); err != nil {
		t.Fatal(err)
	}
	caller.End()
	var names []string
	for _, s := range spans.GetSpans() {
		names = append(names, s.Name)
		if s.SpanContext.TraceID() != caller.SpanContext().TraceID() {
			t.Errorf("%s is in another trace", s.Name)
		}
		if s.EndTime.Before(s.StartTime) {
			t.Errorf("%s ends before it begins", s.Name)
		}
	}
	for _, want := range []string{"model m", "queue", "copy in", "compute", "copy out"} {
		if !slices.Contains(names, want) {
			t.Errorf("no span %q in %q", want, names)
		}
	}
}
