package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// Options configure a Gateway. Only Invoker is required.
type Options struct {
	Invoker Invoker
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	// Tracer creates a span for each call.
	Tracer trace.TracerProvider
	// Bus carries the subjects of triggers, and the messages of rooms between nodes. Without it
	// apps with subjects are refused, and rooms are confined to this node.
	Bus Bus
	// Once elects the node that fires a schedule; nil: this node fires all schedules.
	Once Once
	// Now is the wall clock by which schedules fire. Default: time.Now.
	Now func() time.Time
	// Node is the unique name of this node; it is a part of the ids of WebSockets. Default: a
	// random one.
	Node string
	// Rooms is the prefix of the subjects of rooms. Default: "rooms".
	Rooms string
	// Elsewhere serves requests for apps without routes here.
	// Default: a problem document with the status 404.
	Elsewhere http.Handler
	// MaxBody is the largest body of a request or message. Default: 16 MiB.
	MaxBody outboard.Bytes
	// Buffers bounds the bytes of all requests and messages that are being read, wait for a
	// function, or are processed. Default: 512 MiB.
	Buffers *quota.Budget
	// Output bounds the kept output of functions; the oldest output is dropped first. Nil: only
	// LogSize bounds it.
	Output *quota.Budget
	// Hosts are the host names, without ports, for which requests are served. "*.NAME" is the name
	// Tenant below NAME: a web origin that only the tenant's apps have. None: all names are served,
	// except those of other tenants below localhost.
	Hosts []string
	// Tenant is the label for Hosts with a wildcard, and names the groups of the triggers of subjects.
	Tenant string
	// Calls bounds the calls in progress; more are refused with 429. Default: 1,024.
	Calls int
	// Conns bounds the open connections. Default: 20,000.
	Conns int
	// Sockets bounds the open WebSockets. Default: 10,000.
	Sockets int
	// LogSize is how many calls of each app are kept for Logs. Default: 1,000.
	LogSize int
	// Grace is how long accepted requests may take when the gateway stops.
	// Default: 30 s.
	Grace time.Duration
	// ClientTimeout is how long a client may take to send a request's head, and how long a call may
	// wait for its client to send more of the body or to read the response, plus a second for each
	// 64 KiB. Default: 30 s.
	ClientTimeout time.Duration
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Node == "" {
		o.Node = randomName()
	}
	if o.Rooms == "" {
		o.Rooms = "rooms"
	}
	if o.MaxBody == 0 {
		o.MaxBody = 16 << 20
	}
	if o.Elsewhere == nil {
		o.Elsewhere = http.HandlerFunc(unknownApp)
	}
	if o.Buffers == nil {
		o.Buffers = quota.NewBudget(quota.Requests, 512<<20)
	}
	o.setNumbers()
}

func (o *Options) setNumbers() {
	or := func(n *int, standard int) {
		if *n == 0 {
			*n = standard
		}
	}
	or(&o.Calls, 1024)
	or(&o.Conns, 20_000)
	or(&o.Sockets, 10_000)
	or(&o.LogSize, 1000)
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	if o.ClientTimeout == 0 {
		o.ClientTimeout = DefaultClientTimeout
	}
}

func (o *Options) validate() error {
	switch {
	case o.Invoker == nil:
		return errors.New("there is no Invoker")
	case o.Calls < 0 || o.Conns < 0 || o.Sockets < 0 || o.LogSize < 0 || o.Grace < 0 || o.ClientTimeout < 0:
		return errors.New("a number of the options is negative")
	case strings.ContainsFunc(o.Node, unicode.IsControl):
		return fmt.Errorf("node %q: it has control characters", o.Node)
	}
	return nil
}

// Gateway turns requests, messages and schedules into calls.
type Gateway struct {
	opts     Options
	log      *slog.Logger
	tracer   trace.Tracer // nil: none
	metrics  *metrics
	table    atomic.Pointer[Table]
	server   *server
	inFlight limiter
	sockets  *sockets

	mu   sync.Mutex // guards the field below and changes of table
	apps map[string]*appState

	triggersMu sync.Mutex // before mu
	reconcile  func()     // starts and stops triggers as the table says, while Run runs
}

// New returns a Gateway without apps. It starts nothing.
func New(opts Options) (*Gateway, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, &outboard.Error{Op: "make the gateway", Kind: outboard.Invalid, Err: err}
	}
	g := &Gateway{opts: opts, log: opts.Logger, apps: map[string]*appState{}, reconcile: func() {}}
	var err error
	g.metrics, err = newMetrics(opts.Metrics, opts.Buffers)
	if err != nil {
		return nil, &outboard.Error{Op: "make the gateway", Kind: outboard.Invalid, Err: err}
	}
	if opts.Tracer != nil {
		g.tracer = opts.Tracer.Tracer("github.com/outboard-run/outboard/internal/gateway")
	}
	g.inFlight.limit.Store(int64(opts.Calls))
	g.sockets = newSockets(g)
	g.server = newServer(g)
	g.table.Store(&Table{})
	return g, nil
}

// Name implements lifecycle.Service.
func (g *Gateway) Name() string { return "gateway" }

// SetApps replaces all apps. While Run runs, it returns when the subjects are subscribed to and the
// schedules run. If one of the apps is invalid, no app changes. Calls in progress finish with the
// routes that they began with; WebSockets of removed apps are closed.
func (g *Gateway) SetApps(apps []App) error {
	if err := g.setTable(apps); err != nil {
		return err
	}
	g.reconcileTriggers()
	return nil
}

func (g *Gateway) setTable(apps []App) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.check(apps); err != nil {
		return err
	}
	table, err := newTable(apps, g.handlerOf)
	if err != nil {
		return err
	}
	for i := range apps {
		g.stateOf(apps[i].Name).inFlight.limit.Store(int64(apps[i].Calls))
		missed := g.metrics.route(apps[i].Name, "")
		table.find(apps[i].Name).onMiss = func(status int) { missed.count(status, 0) }
	}
	g.table.Store(table)
	g.removeMissing(table)
	return nil
}

func (g *Gateway) check(apps []App) error {
	for i := range apps {
		if err := apps[i].validate(); err != nil {
			return err
		}
		if len(apps[i].Subjects) > 0 && g.opts.Bus == nil {
			return apps[i].invalid("subject "+apps[i].Subjects[0].Subject, errors.New("this gateway has no bus"))
		}
	}
	return nil
}

// stateOf returns the state of an app that outlives its versions.
func (g *Gateway) stateOf(name string) *appState {
	if s := g.apps[name]; s != nil {
		return s
	}
	s := &appState{name: name, ring: newRing(g.opts.LogSize, g.opts.Output)}
	g.apps[name] = s
	return s
}

func (g *Gateway) removeMissing(table *Table) {
	for name, s := range g.apps {
		if table.find(name) == nil {
			delete(g.apps, name)
			s.ring.close()
			g.metrics.forget(name)
			g.sockets.closeApp(name)
		}
	}
}

// appState is the state of an app apart from its routes.
type appState struct {
	name     string
	ring     *ring
	inFlight limiter
}

// Invoke makes a call that no trigger of the gateway made, and records it.
func (g *Gateway) Invoke(ctx context.Context, c Call) (Answer, error) {
	begin := time.Now()
	ctx, span := g.trace(ctx, &c, nil)
	answer, err := g.opts.Invoker.Invoke(ctx, c)
	g.record(outcome{call: &c, answer: &answer, err: err, begin: begin, took: time.Since(begin), span: span, trace: traceOf(ctx)})
	return answer, err
}

// limiter bounds concurrent uses. A limit of 0 is unlimited.
type limiter struct {
	limit atomic.Int64
	inUse atomic.Int64
}

func (p *limiter) tryAcquire() bool {
	if limit := p.limit.Load(); p.inUse.Add(1) > limit && limit > 0 {
		p.inUse.Add(-1)
		return false
	}
	return true
}

func (p *limiter) release() { p.inUse.Add(-1) }
