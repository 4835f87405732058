// Package traces exports spans to the OpenTelemetry collector that the environment names, if any.
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

// endpoints are the environment variables of OpenTelemetry's specification that name a
// collector. The exporter also reads the variables for headers, certificates, sampling and
// batches.
var endpoints = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

// configured reports whether the environment names a collector.
func configured() bool {
	for _, name := range endpoints {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// Provider creates spans and exports them in batches. It is a trace.TracerProvider.
type Provider struct {
	*trace.TracerProvider
	log *slog.Logger
}

// Open creates a Provider whose spans carry node as service.instance.id. It returns nil if the
// environment names no collector.
func Open(ctx context.Context, node string, log *slog.Logger) (*Provider, error) {
	if !configured() {
		return nil, nil //nolint:nilnil // no collector is configured, which is no error
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	attributes, err := resource.Merge(
		resource.NewSchemaless(attribute.String("service.name", "outboard"), attribute.String("service.instance.id", node)),
		resource.Environment(), // the operator's attributes override ours
	)
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	return &Provider{trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(attributes)), log}, nil
}

// closeLimit bounds the export of the buffered spans in Close.
const closeLimit = 2 * time.Second

// Close exports the buffered spans, for at most two seconds, and shuts the exporter down. It
// may be called on nil.
func (p *Provider) Close() error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		// An unreachable collector is not a failure of the node.
		p.log.Warn("the last traces could not be sent to the collector", "error", err)
	}
	return nil
}
