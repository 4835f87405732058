package router

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// Options are the options of a Router. The zero value selects the defaults.
type Options struct {
	// Policies apply to the calls. The owner of the table applies and rolls back sets.
	// Default: a table of the router's own.
	Policies *policy.Table
	// Node is the node of the callers, for policies.
	Node string
	// Logger receives slow calls and the lines of log policies. Default: none.
	Logger *slog.Logger
	// Registerer receives the metrics, outboard_fabric_*. Default: none.
	Registerer prometheus.Registerer
	// Tracer creates a span for each call, a child of the span that the caller's traceparent
	// names. Without it the caller's traceparent passes unchanged.
	Tracer trace.TracerProvider
	// Slow is the duration from which a call is logged as slow. Default: none is.
	Slow time.Duration
	// Yield is called by a unary call before it waits for anything but its callee. Default:
	// nothing.
	Yield func(ctx context.Context)
	// Mirrors bounds the mirrored calls in flight; further mirrored calls are dropped. Default 256.
	Mirrors int
	// Methods and Peers bound the methods and the callers that are counted by name; further methods
	// and callers are counted together as "other". Defaults 1024 and 256.
	Methods, Peers int
	// Elsewhere returns the endpoint of a stream that this router does not carry, or "" if it is
	// unknown: another process may have carried it so far. Default: none.
	Elsewhere func(ctx context.Context, stream string) string
	// Random returns 64 random bits; it is safe for concurrent use. Default: the runtime's
	// generator.
	Random func() uint64
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Policies == nil {
		o.Policies = new(policy.Table)
	}
	if o.Yield == nil {
		o.Yield = func(context.Context) {}
	}
	if o.Mirrors <= 0 {
		o.Mirrors = 256
	}
	if o.Methods <= 0 {
		o.Methods = 1024
	}
	if o.Peers <= 0 {
		o.Peers = 256
	}
	if o.Elsewhere == nil {
		o.Elsewhere = func(context.Context, string) string { return "" }
	}
	if o.Random == nil {
		o.Random = rand.Uint64
	}
}

// A Router forwards calls.
type Router struct {
	options   Options
	policies  *policy.Table
	empty     *policy.Chain // chain of all calls while no set is in force
	services  atomic.Pointer[map[string]*service]
	stats     *stats
	tracer    trace.Tracer // nil: no spans
	exchanges sync.Pool
	mirrors   chan struct{} // semaphore: has a value for each mirrored call in flight
	mirrored  atomic.Int64  // bytes of the mirrored calls in flight
	streams   streams
	replayed  atomic.Int64 // bytes of memory of the replay buffers of streams

	mu     sync.Mutex // guards changes of services, and closed
	closed bool
	// changed is closed at the next change of services or endpoints; nil: no call waits for it.
	changed chan struct{}
	ctx     context.Context //nolint:containedctx // the life of the goroutines that outlast calls
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

var (
	_ call.Handler      = (*Router)(nil)
	_ call.UnaryHandler = (*Router)(nil)
)

// New returns a Router without services.
func New(o Options) *Router {
	o.setDefaults()
	r := &Router{options: o, policies: o.Policies, empty: new(policy.Chain), mirrors: make(chan struct{}, o.Mirrors)}
	r.stats = newStats(o.Methods, o.Peers)
	r.exchanges.New = func() any { return newExchange(r) }
	if o.Tracer != nil {
		r.tracer = o.Tracer.Tracer("github.com/outboard-run/outboard/internal/fabric/router")
	}
	r.register()
	r.services.Store(&map[string]*service{})
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close removes all services, ends mirrored calls and waits for the router's goroutines. Calls
// in flight are ended by their callers. It may be called twice.
func (r *Router) Close() error {
	r.mu.Lock()
	r.closed = true
	services := *r.services.Load()
	r.services.Store(&map[string]*service{})
	for _, s := range services {
		s.replace(r, nil)
		s.retire()
	}
	r.mu.Unlock()
	r.stop()
	r.wg.Wait()
	return nil
}

// spawn starts a goroutine that Close waits for. It returns false after Close.
func (r *Router) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Go(f)
	return true
}

// SetPolicies puts a set in force. Calls in flight end on the chain on which they began.
func (r *Router) SetPolicies(set *policy.Set) { r.policies.Apply(set, time.Now()) }

// SetService adds or replaces a service. Endpoints with the same ID and Transport stay in use
// and, with an unchanged Balance, keep their balancing state.
func (r *Router) SetService(name string, set Service) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	before := (*r.services.Load())[name]
	s, err := serviceOf(name, set, before)
	if err != nil {
		return err
	}
	s.replace(r, set.Endpoints)
	if s != before {
		services := maps.Clone(*r.services.Load())
		services[name] = s
		r.services.Store(&services)
	}
	// A call whose endpoint is retired picks among the new endpoints at its next attempt.
	s.retire()
	r.announceChange()
	return nil
}

// Services returns the names of the services, in order.
func (r *Router) Services() []string { return slices.Sorted(maps.Keys(*r.services.Load())) }

// Endpoints returns the balancing state of a service's endpoints.
func (r *Router) Endpoints(service string) []balance.Status {
	s := (*r.services.Load())[service]
	if s == nil {
		return nil
	}
	return s.picker.Status(time.Now())
}

// RemoveService removes a service. Its calls in flight are not interrupted.
func (r *Router) RemoveService(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	services := maps.Clone(*r.services.Load())
	if s := services[name]; s != nil {
		delete(services, name)
		r.services.Store(&services)
		s.replace(r, nil)
		s.retire()
	}
}
