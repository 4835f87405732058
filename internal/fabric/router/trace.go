package router

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// carrier stores W3C's trace context in metadata.
type carrier metadata.MD

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if values := c[strings.ToLower(key)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { c[strings.ToLower(key)] = []string{value} }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }

// trace starts the call's span, a child of the caller's span, and passes its trace context to the
// callee. Without a tracer, or if a policy decides that the call is not traced, the caller's trace
// context passes unchanged.
func (c *exchange) trace(ctx context.Context) context.Context {
	t := c.Plan.Trace
	if c.router.tracer == nil || t != nil && !t.Sampled {
		return ctx
	}
	propagator := propagation.TraceContext{}
	ctx = propagator.Extract(ctx, carrier(c.Head.Metadata))
	ctx, c.span = c.router.tracer.Start(ctx, strings.TrimPrefix(c.caller.Method, "/"),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.began), trace.WithAttributes(
			attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", c.caller.Service()),
			attribute.String("rpc.method", c.caller.Name()), attribute.String("outboard.tenant", c.caller.Tenant)))
	if t != nil && c.span.IsRecording() {
		c.span.SetAttributes(attributes(t.Attributes)...)
	}
	h := c.Own()
	// Other goroutines may read the map.
	h.Metadata = maps.Clone(h.Metadata)
	if h.Metadata == nil {
		h.Metadata = metadata.MD{}
	}
	propagator.Inject(ctx, carrier(h.Metadata))
	return ctx
}

func attributes(fields []policy.Field) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, len(fields))
	for _, f := range fields {
		list = append(list, attributeOf(f))
	}
	return list
}

func attributeOf(f policy.Field) attribute.KeyValue {
	switch v := f.Value.(type) {
	case bool:
		return attribute.Bool(f.Key, v)
	case int64:
		return attribute.Int64(f.Key, v)
	case float64:
		return attribute.Float64(f.Key, v)
	case string:
		return attribute.String(f.Key, v)
	case time.Duration:
		return attribute.Float64(f.Key, v.Seconds())
	}
	return attribute.String(f.Key, fmt.Sprint(f.Value))
}

// endSpan records the outcome of the call in its span, and ends the span.
func (c *exchange) endSpan(err error) {
	if c.span == nil {
		return
	}
	if c.span.IsRecording() {
		code := status.Code(err)
		c.span.SetAttributes(attribute.Int64("rpc.grpc.status_code", int64(code)), attribute.Int("outboard.attempts", c.attempts),
			attribute.StringSlice("outboard.policies", c.Plan.Acted))
		if c.endpoint != nil {
			c.span.SetAttributes(attribute.String("outboard.endpoint", c.endpoint.id))
		}
		if isServerFault(code) {
			c.span.SetStatus(otelcodes.Error, status.Convert(err).Message())
		}
	}
	c.span.End()
}

// isServerFault reports whether a status is the callee's fault, by the conventions for the server
// side of RPC.
func isServerFault(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	default:
		return false
	}
}
