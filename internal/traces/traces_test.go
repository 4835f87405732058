package traces_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/internal/traces"
)

func TestNoCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	p, err := traces.Open(t.Context(), "harbour", slog.New(slog.DiscardHandler))
	if p != nil || err != nil {
		t.Errorf("got %v, %v", p, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A span reaches the collector, with its node and its parent.
func TestSpansReachTheCollector(t *testing.T) {
	got := make(chan *collector.ExportTraceServiceRequest, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := &collector.ExportTraceServiceRequest{}
		if err != nil || proto.Unmarshal(body, request) != nil {
			t.Errorf("%s: no spans: %v", r.URL.Path, err)
		}
		got <- request
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	p, err := traces.Open(t.Context(), "harbour", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{8}, TraceFlags: trace.FlagsSampled, Remote: true})
	_, span := p.Tracer("test").Start(trace.ContextWithRemoteSpanContext(t.Context(), parent), "a call")
	span.End()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	spans := (<-got).GetResourceSpans()[0]
	one := spans.GetScopeSpans()[0].GetSpans()[0]
	if one.GetName() != "a call" || one.GetTraceId()[0] != 7 || one.GetParentSpanId()[0] != 8 {
		t.Errorf("span %v", one)
	}
	about := map[string]string{}
	for _, a := range spans.GetResource().GetAttributes() {
		about[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if about["service.name"] != "outboard" || about["service.instance.id"] != "harbour" {
		t.Errorf("resource %v", about)
	}
}
