package tenant

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/traces"
	"github.com/outboard-run/outboard/internal/unixsock"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// Grace is how long what requests and messages have begun may take when the process is to end.
const Grace = 30 * time.Second

// A Tenant is what a tenant's process is made of. Its parts are set while its services
// start, in their order, and only read afterwards.
type Tenant struct {
	config  Config
	opts    ProcessOptions
	log     *slog.Logger
	metrics *prometheus.Registry
	life    context.Context //nolint:containedctx // of what outlives a request
	end     context.CancelFunc
	running sync.WaitGroup
	up      chan struct{} // closed when the process is ready

	spans   *traces.Provider // nil: nobody wants any
	state   *state.State
	peers   *peers
	files   *files
	values  *values
	runtime *function.Runtime
	gateway *gateway.Gateway
	engine  *engine.Engine
	apps    *shelf
	planner planner
	members members

	underWay underWay
}

var _ lifecycle.Service = (*Tenant)(nil)

// New makes a tenant's process of this one, and starts nothing.
func New(c Config, opts ProcessOptions) *Tenant {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Tenant{
		config: c, opts: opts, metrics: prometheus.NewRegistry(), up: make(chan struct{}),
		log: opts.Logger.With("plane", "tenant", "tenant", c.Tenant, "node", c.Node),
	}
	t.planner.tenant = t
	t.members.set(c.Members)
	return t
}

// Name implements lifecycle.Service.
func (t *Tenant) Name() string { return "tenant " + t.config.Tenant }

// Run runs the tenant's apps until ctx ends.
func (t *Tenant) Run(ctx context.Context, ready func()) error {
	services := t.services()
	for i, s := range services {
		services[i] = lifecycle.Func(s.Name(), func(ctx context.Context, ready func()) error {
			t.doing("it starts its part \"" + s.Name() + "\"")
			return s.Run(ctx, ready)
		})
	}
	return lifecycle.Run(ctx, func() { close(t.up); ready() }, services...)
}

// doing tells what keeps the process from being ready.
func (t *Tenant) doing(what string) {
	select {
	case <-t.up:
	default:
		if t.opts.Progress != nil {
			t.opts.Progress(what)
		}
	}
}

// Requests serves requests to the apps, while Run runs and is ready.
func (t *Tenant) Requests() http.Handler { return t.gateway }

// Control serves the part of a node's local API that is about the tenant's apps, while
// Run runs and is ready.
func (t *Tenant) Control() http.Handler { return t.control() }

// services are the process's parts, in the order in which they need each other.
func (t *Tenant) services() []lifecycle.Service {
	return []lifecycle.Service{
		lifecycle.Hold("life", t.openLife),
		lifecycle.Hold("traces", t.openTraces),
		lifecycle.Hold("state", t.openState),
		lifecycle.Hold("files", t.openFiles),
		lifecycle.Hold("functions", t.openRuntime),
		lifecycle.Hold("values", t.openValues),
		lifecycle.Hold("gateway", t.openGateway),
		lifecycle.Hold("apps", t.openApps),
		lifecycle.Hold("workflows", t.openEngine),
		lifecycle.Func("requests", func(ctx context.Context, ready func()) error { return t.gateway.Run(ctx, ready) }),
		lifecycle.Func("peers", t.servePeers),
		lifecycle.Func("apps' follower", t.follow),
		lifecycle.Func("idle instances", t.trim),
		lifecycle.Func("connections", t.serveConns),
		lifecycle.Func("local API", t.serveControl),
	}
}

// closer is a function as a resource.
type closer func() error

// Close implements lifecycle.Resource.
func (c closer) Close() error { return c() }

func (t *Tenant) openLife(ctx context.Context) (lifecycle.Resource, error) {
	t.life, t.end = context.WithCancel(context.WithoutCancel(ctx))
	return closer(func() error { t.end(); t.running.Wait(); return nil }), nil
}

func (t *Tenant) openTraces(ctx context.Context) (lifecycle.Resource, error) {
	var err error
	t.spans, err = traces.Open(ctx, string(t.config.Node), t.log)
	return t.spans, err
}

func (t *Tenant) openState(ctx context.Context) (lifecycle.Resource, error) {
	var err error
	if t.config.NATS != "" {
		t.state, err = state.Connect(ctx, state.ConnectOptions{URL: t.config.NATS, Creds: t.config.Creds, Logger: t.log})
		return t.state, err
	}
	t.state, err = state.Attach(ctx, state.AttachOptions{Logger: t.log, Dial: func() (net.Conn, error) {
		return unixsock.Dial(context.WithoutCancel(ctx), t.config.StateSocket)
	}})
	return t.state, err
}

func (t *Tenant) openFiles(context.Context) (lifecycle.Resource, error) {
	if err := t.config.makeDirs(); err != nil {
		return nil, err
	}
	var err error
	if t.peers, err = dialPeers(&t.config, t.log); err != nil {
		return nil, err
	}
	t.files = &files{dir: t.config.Dir, peers: t.peers, heard: t.members.heard}
	t.files.others = func() []outboard.NodeID { return t.members.others(t.config.Node) }
	t.files.artifacts, err = artifact.Open(artifact.Options{Dir: t.config.Artifacts, Source: t.files, Logger: t.log})
	if err != nil {
		return nil, errors.Join(err, t.peers.close())
	}
	return closer(t.peers.close), nil
}

func (t *Tenant) openRuntime(ctx context.Context) (lifecycle.Resource, error) {
	var err error
	t.runtime, err = function.Open(ctx, function.Options{CacheDir: t.config.compiledDir(), Metrics: t.metrics, Log: t.log})
	return t.runtime, err
}

func (t *Tenant) openValues(context.Context) (lifecycle.Resource, error) {
	t.values = newValues(t.files, t.arenaSize, t.planner.launches.over)
	return closer(func() error { t.values.close(); return nil }), nil
}

func (t *Tenant) openGateway(context.Context) (lifecycle.Resource, error) {
	o := gateway.Options{
		Invoker: t, Logger: t.log, Metrics: t.metrics, Bus: bus{t.state}, Once: ticks{t}, Node: string(t.config.Node),
		Rooms: "rooms." + t.config.Tenant, Elsewhere: t.elsewhere(), Grace: Grace,
	}
	if t.spans != nil {
		o.Tracer = t.spans
	}
	var err error
	t.gateway, err = gateway.New(o)
	return closer(func() error { return nil }), err
}

func (t *Tenant) openEngine(ctx context.Context) (lifecycle.Resource, error) {
	log, err := t.state.OpenLog(ctx, "executions", state.LogOptions{})
	if err != nil {
		return nil, err
	}
	heard, err := t.state.OpenLog(ctx, "events", state.LogOptions{MaxAge: keepEvents})
	if err != nil {
		return nil, err
	}
	o := engine.Options{
		Tenant: t.config.Tenant, Node: string(t.config.Node),
		Log: log, Claims: t.claims(log), Workflows: workflows{t}, Functions: steps{t}, Values: t.values, Events: events{t, heard},
		Registerer: t.metrics, Logger: t.log,
	}
	if t.spans != nil {
		o.Tracer = t.spans.Tracer("github.com/outboard-run/outboard/internal/workflow")
	}
	t.engine, err = engine.Open(ctx, o)
	return t.engine, err
}
