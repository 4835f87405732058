package gateway

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// traceparentSize is the length of the header of W3C's Trace Context, level 1,
// section 3.2: version, trace, parent and flags in hexadecimal, with dashes.
const traceparentSize = 2 + 1 + 32 + 1 + 16 + 1 + 2

// parseTraceparent parses the header; an invalid header counts as absent. Later versions begin like
// this one and may continue after another dash.
func parseTraceparent(s string) (trace.SpanContext, bool) {
	if len(s) < traceparentSize || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return trace.SpanContext{}, false
	}
	if s[:2] == "ff" || s[:2] == "00" && len(s) != traceparentSize || len(s) > traceparentSize && s[traceparentSize] != '-' {
		return trace.SpanContext{}, false
	}
	var version, flags [1]byte
	var c trace.SpanContextConfig
	ok := unhex(version[:], s[:2]) && unhex(c.TraceID[:], s[3:35]) && unhex(c.SpanID[:], s[36:52]) && unhex(flags[:], s[53:55])
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&trace.FlagsSampled, true
	return trace.NewSpanContext(c), ok && c.TraceID.IsValid() && c.SpanID.IsValid()
}

// unhex decodes lower-case digits: the header must not have others.
func unhex(to []byte, s string) bool {
	for i := range to {
		high, low := digit(s[2*i]), digit(s[2*i+1])
		if high|low > 15 {
			return false
		}
		to[i] = high<<4 | low
	}
	return true
}

func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// appendTraceparent writes the header's value.
func appendTraceparent(b []byte, c trace.SpanContext) []byte {
	id, span := c.TraceID(), c.SpanID()
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, id[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, span[:])
	b = append(b, '-')
	return hex.AppendEncode(b, []byte{byte(c.TraceFlags())})
}

// newSpanContext begins a trace that is not sampled.
func newSpanContext() trace.SpanContext {
	var c trace.SpanContextConfig
	fill(c.TraceID[:])
	fill(c.SpanID[:])
	return trace.NewSpanContext(c)
}

// fill fills b with random bytes, the first not 0: an ID must not be all zero.
func fill(b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rand.Uint64())
	}
	b[0] |= 1
}

func randomName() string {
	var b [16]byte
	fill(b[:])
	return hex.EncodeToString(b[:])
}

// ofHeader returns the trace context in a request's header.
func ofHeader(header http.Header) (trace.SpanContext, bool) {
	parents := header["Traceparent"]
	if len(parents) != 1 {
		return trace.SpanContext{}, false
	}
	known, ok := parseTraceparent(parents[0])
	if state, err := trace.ParseTraceState(strings.Join(header["Tracestate"], ",")); ok && err == nil {
		known = known.WithTraceState(state)
	}
	return known, ok
}

// trace adds a trace to a call's context: that of the context, or else of the header, or else a new
// one. The span is nil if none is recorded.
func (g *Gateway) trace(ctx context.Context, c *Call, header http.Header) (context.Context, trace.Span) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		known, ok := ofHeader(header)
		if !ok {
			known = newSpanContext()
		}
		if g.tracer == nil || ok {
			ctx = trace.ContextWithRemoteSpanContext(ctx, known)
		}
	}
	if g.tracer == nil {
		return ctx, nil
	}
	return g.tracer.Start(ctx, c.App+" "+c.Route, trace.WithSpanKind(kindOf(c.Trigger)), trace.WithAttributes(
		attribute.String("outboard.app", c.App), attribute.String("outboard.target", c.target()),
		attribute.String("outboard.trigger", string(c.Trigger)),
	))
}

func kindOf(t Trigger) trace.SpanKind {
	switch t {
	case HTTP, WebSocket, Invoke:
		return trace.SpanKindServer
	case Subject:
		return trace.SpanKindConsumer
	case Cron:
	}
	return trace.SpanKindInternal
}

// endSpan ends a call's span with its outcome.
func endSpan(span trace.Span, err error, status int) {
	if span == nil {
		return
	}
	if status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if err != nil {
		span.SetStatus(codes.Error, detailOf(err))
	}
	span.End()
}

func traceOf(ctx context.Context) trace.SpanContext { return trace.SpanContextFromContext(ctx) }
