// Package traces sends spans to an OpenTelemetry collector, where the environment
// names one.
package traces

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// endpoints are the variables of OpenTelemetry that name a collector. Others of
// its specification (headers, certificates, sampling, batches) count as well.
var endpoints = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

// wanted says whether the environment names a collector.
func wanted() bool {
	for _, name := range endpoints {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// A Provider makes spans and sends them. It is a trace.TracerProvider.
type Provider struct {
	*trace.TracerProvider
	log *slog.Logger
}

// Open makes a Provider whose spans are of a node. It returns nil where the
// environment names no collector.
func Open(ctx context.Context, node string, log *slog.Logger) (*Provider, error) {
	if !wanted() {
		return nil, nil //nolint:nilnil // nobody wants spans, which is no error
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	about, err := resource.Merge(
		resource.NewSchemaless(attribute.String("service.name", "outboard"), attribute.String("service.instance.id", node)),
		resource.Environment(), // what the operator says counts
	)
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	return &Provider{trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about)), log}, nil
}

// closeLimit is how long the last spans may take.
const closeLimit = 2 * time.Second

// Close sends what is left. It may be called on nil.
func (p *Provider) Close() error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		// Not ours to fail for: the collector is gone.
		p.log.Warn("the last traces are lost", "error", err)
	}
	return nil
}
