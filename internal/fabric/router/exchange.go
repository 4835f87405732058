package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// exchange is one call in the router. One goroutine uses it at a time; goroutines that outlive
// the call (a loser of a hedged call, a mirrored call) hold no reference to it. Exchanges are
// pooled.
type exchange struct {
	policy.Exchange
	router   *Router
	chain    *policy.Chain
	method   *method
	caller   *call.Head    // as received
	request  *call.Message // the first request; nil once it was handed over
	began    time.Time
	ended    time.Time        // end of the last attempt
	deadline *deadlineContext // has the plan's timeout, or is kept for a later call; nil: none
	limited  bool             // this call uses deadline
	retained bool             // the head and the context may be used after the call
	span     trace.Span       // nil: none

	streamName string // name of a stream that can move
	movedAway  bool   // the stream continues on another connection
	movedIn    bool   // the stream has moved here, and its callee has accepted it

	tried    []string  // IDs of the endpoints of earlier attempts
	endpoint *endpoint // endpoint of the last attempt
	attempts int

	// These method values are bound once: binding them for each call would allocate.
	payload func() ([]byte, error)
	message func() (protoreflect.Message, error)
}

func newExchange(r *Router) *exchange {
	c := &exchange{router: r}
	c.payload, c.message = c.encodedRequest, c.decodedRequest
	return c
}

// startExchange starts to count a call and finds its chain.
func (r *Router) startExchange(h *call.Head) *exchange {
	c := r.exchanges.Get().(*exchange)
	c.began = time.Now()
	c.caller, c.Head, c.Now, c.Rand = h, h, c.began, r.options.Random
	c.Nodes, c.Node = r.policies.Nodes(), r.options.Node
	c.method = r.method(h)
	c.method.inFlight.Add(1)
	c.chain = r.chain(h)
	return c
}

func (r *Router) chain(h *call.Head) *policy.Chain {
	if set := r.policies.Set(); set != nil {
		return set.For(h)
	}
	return r.empty
}

// method returns the counters of a method. Methods of unknown services share the counters of
// otherName or systemName, since callers choose the names.
func (r *Router) method(h *call.Head) *method {
	service := h.Service()
	switch {
	case (*r.services.Load())[service] != nil:
		return r.stats.methods.of(h.Method)
	case strings.HasPrefix(service, systemPrefix):
		return r.stats.methods.of(systemName)
	}
	return r.stats.methods.of(otherName)
}

// applyPolicies begins the policy chain. It sets Head, request and Plan.
func (c *exchange) applyPolicies(ctx context.Context) (context.Context, error) {
	if c.chain.Len() > 0 {
		c.Payload = c.payload
		if c.request != nil && c.request.Value != nil {
			if _, ok := c.request.Value.(proto.Message); ok {
				c.Request = c.message
			}
		}
		if err := c.chain.Begin(&c.Exchange); err != nil {
			if c.Plan.Delay > 0 {
				// An injected fault comes after an injected delay, within the call's timeout.
				return ctx, cmp.Or(c.delay(c.limit(ctx), c.Plan.Delay), err)
			}
			return ctx, err
		}
		if c.Plan.Payload != nil {
			c.request.Free()
			c.request = &call.Message{Data: c.Plan.Payload}
		}
	}
	ctx = c.trace(ctx)
	return c.limit(ctx), nil
}

// limit applies the plan's timeout to the context and the head.
func (c *exchange) limit(ctx context.Context) context.Context {
	if c.Plan.Timeout <= 0 {
		return ctx
	}
	deadline := c.began.Add(c.Plan.Timeout)
	if d := c.Head.Deadline; d.IsZero() || deadline.Before(d) {
		c.Own().Deadline = deadline
	}
	if d, ok := ctx.Deadline(); !ok || deadline.Before(d) {
		return c.withDeadline(ctx, deadline)
	}
	return ctx
}

func (c *exchange) withDeadline(ctx context.Context, deadline time.Time) context.Context {
	if c.deadline == nil {
		c.deadline = newDeadlineContext(ctx, deadline)
	} else {
		c.deadline.restart(ctx, deadline)
	}
	c.limited = true
	return c.deadline
}

// retainMemory marks that the head and the context may be used after the call: their memory is
// not reused.
func (c *exchange) retainMemory() { c.retained = true }

// encodedRequest returns the encoded request for the policies. It copies the request, which
// may lie in memory that its sender can still write: the bytes that the policies saw are the
// bytes that are sent.
func (c *exchange) encodedRequest() ([]byte, error) {
	if c.request == nil {
		return nil, status.Error(codes.Internal, "router: no request to look at")
	}
	data, err := c.request.Bytes()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "router: encode the request: %v", err)
	}
	if !c.request.Compressed {
		data = slices.Clone(data)
	} else if data, err = decompress(c.Head.Encoding, data); err != nil {
		return nil, err
	}
	c.request.Free()
	c.request = &call.Message{Data: data}
	return data, nil
}

func (c *exchange) decodedRequest() (protoreflect.Message, error) {
	return c.request.Value.(proto.Message).ProtoReflect(), nil //nolint:errcheck // applyPolicies has checked the type
}

// respond applies the policies to the metadata of a response. Nil metadata has not arrived
// yet; empty metadata has.
func (c *exchange) respond(header, trailer metadata.MD) (metadata.MD, metadata.MD, error) {
	if !c.Plan.Rewrites {
		return header, trailer, nil
	}
	return c.chain.Response(&c.Exchange, header, trailer)
}

// finish ends the call. The exchange must not be used afterwards.
func (c *exchange) finish(err error) {
	now := c.ended
	if now.IsZero() {
		now = time.Now()
	}
	if c.limited {
		c.deadline.end()
	}
	if c.movedAway || c.Moved && !c.movedIn {
		c.handOver(now)
	} else {
		c.chain.End(&c.Exchange, policy.Outcome{Err: err, Now: now})
		c.count(err, now)
		c.log(err, now.Sub(c.began))
	}
	c.endSpan(err)
	c.request.Free()
	c.recycle()
}

func (c *exchange) count(err error, now time.Time) {
	c.method.inFlight.Add(-1)
	c.method.record(status.Code(err), now.Sub(c.began), now)
	c.router.stats.peerOf(c.caller).record(err)
	for _, name := range c.Plan.Acted {
		c.method.acted.of(name).Add(1)
	}
}

func (c *exchange) log(err error, took time.Duration) {
	slow := c.router.options.Slow
	if slow <= 0 || took < slow {
		slow = 0
	}
	if slow == 0 && len(c.Plan.Logs) == 0 && !c.Plan.Sample {
		return
	}
	about := c.logAttrs(err, took)
	l := c.router.options.Logger
	for _, line := range c.Plan.Logs {
		attrs := append(slices.Clone(about), slog.String("policy", line.Policy), slog.Bool("slow", line.Slow))
		for _, f := range line.Fields {
			attrs = append(attrs, slog.Any(f.Key, f.Value))
		}
		l.LogAttrs(context.Background(), slog.LevelInfo, "call", attrs...)
	}
	if slow > 0 {
		l.LogAttrs(context.Background(), slog.LevelWarn, "slow call", about...)
	}
	if c.Plan.Sample {
		l.LogAttrs(context.Background(), slog.LevelInfo, "sampled call", append(about, c.sampleAttrs()...)...)
	}
}

// logAttrs returns the attributes of every log line about a call.
func (c *exchange) logAttrs(err error, took time.Duration) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("method", c.caller.Method), slog.String("tenant", c.caller.Tenant), slog.String("peer", c.caller.Peer),
		slog.Duration("took", took), slog.String("code", status.Code(err).String()), slog.Int("attempts", c.attempts),
	}
	if c.endpoint != nil {
		attrs = append(attrs, slog.String("endpoint", c.endpoint.id))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", status.Convert(err).Message()))
	}
	return attrs
}

// sampleAttrs returns the additional attributes of a sampled call. Values of metadata may be
// secrets: only their keys are logged.
func (c *exchange) sampleAttrs() []slog.Attr {
	keys := make([]string, 0, len(c.Head.Metadata))
	for k := range c.Head.Metadata {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return []slog.Attr{
		slog.Any("metadata_keys", keys), slog.Any("acted", slices.Clone(c.Plan.Acted)),
		slog.Any("endpoints", slices.Clone(c.tried)), slog.Time("deadline", c.Head.Deadline),
	}
}

func (c *exchange) recycle() {
	r, reuse := c.router, c.deadline
	if c.limited && (c.retained || !c.deadline.reset()) {
		reuse = nil
	}
	if c.retained {
		c.ReleaseHead()
	}
	c.Reset()
	clear(c.tried)
	*c = exchange{Exchange: c.Exchange, router: r, deadline: reuse, tried: c.tried[:0], payload: c.payload, message: c.message}
	r.exchanges.Put(c)
}

// toStatus converts an error of a transport or a context to an error of package status.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unknown, err.Error())
}
