package tenant

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/egress"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/gateway/poolbus"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/quota"
	"github.com/outboard-run/outboard/internal/tenant/blob"
	"github.com/outboard-run/outboard/internal/tenant/members"
	"github.com/outboard-run/outboard/internal/tenant/models"
	"github.com/outboard-run/outboard/internal/tenant/peer"
	"github.com/outboard-run/outboard/internal/traces"
	"github.com/outboard-run/outboard/internal/unixsock"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/planner"
	"github.com/outboard-run/outboard/internal/workflow/poolstate"
)

// Grace is how long accepted requests and messages may take when the process stops.
const Grace = 30 * time.Second

// The types of package app for this process: its versions consist of functions and workflows.
type (
	version     = app.Version[*deployed, *dsl.Workflow]
	deployments = app.Deployments[*deployed, *dsl.Workflow]
)

// Tenant is the composition root of a tenant's process: gateway, function runtime, workflow
// engine, and the apps that they serve. Its parts are set while its services start, in their
// order, and only read afterwards.
type Tenant struct {
	config  Config
	opts    ProcessOptions
	log     *slog.Logger
	metrics *prometheus.Registry
	account *quota.Account
	life    context.Context //nolint:containedctx // of work that outlives a request
	end     context.CancelFunc
	running sync.WaitGroup
	ready   chan struct{} // closed when the process is ready

	spans    *traces.Provider // nil: spans are not exported
	state    *state.State
	members  *members.Members
	peers    *peer.Client
	models   *models.Models
	files    *blob.Store
	values   *values
	runtime  *function.Runtime
	gateway  *gateway.Gateway
	registry *catalog.Catalog
	apps     *deployments
	engine   *engine.Engine
	planner  *planner.Planner
	steps    *steps
	egress   *egress.Egress
	grpc     *grpcCaller
}

var _ lifecycle.Service = (*Tenant)(nil)

// New returns a tenant's process that has not started anything.
func New(c Config, opts ProcessOptions) *Tenant {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Tenant{
		config: c, opts: opts, metrics: prometheus.NewRegistry(), account: quota.NewAccount(c.Limits), ready: make(chan struct{}), members: members.New(c.Node, c.Members),
		log: opts.Logger.With("plane", "tenant", "tenant", c.Tenant, "node", c.Node),
	}
}

// Name implements lifecycle.Service.
func (t *Tenant) Name() string { return "tenant " + t.config.Tenant }

// Run runs the tenant's apps until ctx ends.
func (t *Tenant) Run(ctx context.Context, ready func()) error {
	services := t.services()
	for i, s := range services {
		services[i] = lifecycle.Func(s.Name(), func(ctx context.Context, ready func()) error {
			t.reportProgress("it starts its part \"" + s.Name() + "\"")
			return s.Run(ctx, ready)
		})
	}
	return lifecycle.Run(ctx, func() { close(t.ready); ready() }, services...)
}

// reportProgress tells the node what the process does until it is ready.
func (t *Tenant) reportProgress(text string) {
	select {
	case <-t.ready:
	default:
		if t.opts.Progress != nil {
			t.opts.Progress(text)
		}
	}
}

// Requests serves requests to the apps, while Run runs and is ready.
func (t *Tenant) Requests() http.Handler { return t.gateway }

// Control serves the part of a node's local API that concerns the tenant's apps, while Run
// runs and is ready.
func (t *Tenant) Control() http.Handler { return t.control() }

// services returns the process's parts, in the order of their dependencies.
func (t *Tenant) services() []lifecycle.Service {
	return []lifecycle.Service{
		lifecycle.Hold("life", t.openLife),
		lifecycle.Hold("traces", t.openTraces),
		lifecycle.Hold("state", t.openState),
		lifecycle.Hold("files", t.openFiles),
		lifecycle.Hold("models", func(context.Context) (_ lifecycle.Resource, err error) {
			t.models, err = models.Dial(models.Options{Socket: t.config.ModelsSocket, Bypass: t.config.ModelBypassSocket, Credential: t.config.DevicesKey, Log: t.log})
			return t.models, err
		}),
		lifecycle.Hold("functions", t.openRuntime),
		lifecycle.Hold("values", t.openValues),
		lifecycle.Hold("outgoing requests", (&egressOpener{t}).open),
		lifecycle.Hold("gateway", t.openGateway),
		lifecycle.Hold("apps", t.openApps),
		lifecycle.Hold("workflows", t.openEngine),
		lifecycle.Func("requests", func(ctx context.Context, ready func()) error { return t.gateway.Run(ctx, ready) }),
		lifecycle.Func("peers", t.servePeers),
		lifecycle.Func("apps' reconciler", func(ctx context.Context, ready func()) error { return t.apps.Run(ctx, ready) }),
		lifecycle.Func("idle instances", func(ctx context.Context, ready func()) error { return trim(ctx, ready, t.apps) }),
		lifecycle.Func("artifacts' collector", t.collectArtifacts),
		lifecycle.Func("requests", t.serveRequests),
		lifecycle.Func("local API", t.serveControl),
	}
}

// closer is a function that implements lifecycle.Resource.
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
	t.state, err = state.Attach(ctx, state.AttachOptions{Logger: t.log, Name: string(t.config.Node), Tenant: t.config.Tenant, Dial: func() (net.Conn, error) {
		return t.dialState(context.WithoutCancel(ctx))
	}})
	return t.state, err
}

// dialState connects to the node's state, and proves this process's tenant.
func (t *Tenant) dialState(ctx context.Context) (net.Conn, error) {
	conn, err := unixsock.Dial(ctx, t.config.StateSocket)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, t.config.DevicesKey); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (t *Tenant) openFiles(context.Context) (lifecycle.Resource, error) {
	if err := t.config.makeDirs(); err != nil {
		return nil, err
	}
	var err error
	if t.peers, err = peer.Dial(t.config.Tenant, t.config.CallsSocket, t.config.DevicesKey, t.log); err != nil {
		return nil, err
	}
	t.files = &blob.Store{Dir: t.config.Dir, Peers: t.peers, Others: t.members.Peers, Known: t.members.Known}
	t.files.Artifacts, err = artifact.Open(artifact.Options{Dir: t.config.ownArtifacts(), Shared: t.config.Artifacts, Source: t.files, Logger: t.log})
	if err != nil {
		return nil, errors.Join(err, t.peers.Close())
	}
	return closer(t.peers.Close), nil
}

// collectInterval is how often artifacts that no app needs are removed, and how long an artifact is
// kept without an app: a deployment fetches them before it is written.
const collectInterval = time.Hour

// collectArtifacts removes the fetched artifacts that no app needs any more.
func (t *Tenant) collectArtifacts(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(collectInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := t.files.Artifacts.Collect(ctx, t.registry.Files(), collectInterval); err != nil && ctx.Err() == nil {
			t.log.Warn("artifacts that no app needs are not all removed", "error", err)
		}
	}
}

func (t *Tenant) openRuntime(ctx context.Context) (lifecycle.Resource, error) {
	err := t.metrics.Register(t.account)
	if err != nil {
		return nil, err
	}
	t.runtime, err = function.Open(ctx, function.Options{CacheDir: t.config.compiledDir(), Metrics: t.metrics, Log: t.log})
	return t.runtime, err
}

func (t *Tenant) openValues(context.Context) (lifecycle.Resource, error) {
	t.values = newValues(t.files, func(app string) outboard.Bytes { return t.apps.ArenaSize(app) }, func(id engine.ID) { t.planner.Forget(id) })
	return closer(func() error { t.values.close(); return nil }), nil
}

func (t *Tenant) openGateway(context.Context) (lifecycle.Resource, error) {
	o := gateway.Options{
		Invoker: &invoker{t}, Logger: t.log, Metrics: t.metrics, Node: string(t.config.Node), Grace: Grace,
		Bus: poolbus.Bus{State: t.state}, Once: poolbus.Ticks{State: t.state, Tenant: t.config.Tenant, Node: t.config.Node},
		Buffers: t.account.Budget(quota.Requests), Output: t.account.Budget(quota.Logs),
		Rooms: "rooms." + t.config.Tenant, Elsewhere: http.HandlerFunc(t.serveUnrouted), Hosts: t.config.Hosts, Tenant: t.config.Tenant,
		ClientTimeout: t.config.ClientTimeout, Conns: clientConns(),
	}
	if t.spans != nil {
		o.Tracer = t.spans
	}
	var err error
	t.gateway, err = gateway.New(o)
	return closer(func() error { return nil }), err
}

func (t *Tenant) openApps(ctx context.Context) (lifecycle.Resource, error) {
	var err error
	if t.registry, err = catalog.Open(ctx, catalog.Options{State: t.state, Self: t.config.Node, Logger: t.log}); err != nil {
		return nil, err
	}
	t.apps = app.New(app.Options[*deployed, *dsl.Workflow]{
		Registry: t.registry, Tenant: t.config.Tenant, Files: t.files, Planes: planes{t}, Router: router{t.gateway},
		Survey: t.survey, Members: t.members.Changed, Logger: t.log,
	})
	return closer(func() error { return errors.Join(t.apps.Close(), t.registry.Close()) }), nil
}

func (t *Tenant) openEngine(ctx context.Context) (lifecycle.Resource, error) {
	log, err := t.state.OpenLog(ctx, "executions", state.LogOptions{})
	if err != nil {
		return nil, err
	}
	events, err := t.state.OpenLog(ctx, "events", state.LogOptions{MaxAge: poolstate.EventRetention})
	if err != nil {
		return nil, err
	}
	t.steps = &steps{tenant: t}
	t.planner = t.newPlanner()
	o := engine.Options{
		Tenant: t.config.Tenant, Node: string(t.config.Node), Log: log, Workflows: workflows{t.apps}, Functions: t.steps, Services: t.steps, Values: t.values,
		Events: poolstate.Events{Tenant: t.config.Tenant, State: t.state, Log: events}, Executions: t.config.MaxExecutions, Held: t.account.Budget(quota.Executions), Registerer: t.metrics, Logger: t.log,
		Claims: poolstate.NewClaims(poolstate.ClaimsOptions{
			Tenant: t.config.Tenant, Self: t.config.Node, Members: t.members, Log: log, Ready: t.ready, Logger: t.log,
			Serving: func(app string) bool { return t.apps.Current(app) != nil }, Await: t.apps.AwaitServing,
		}),
	}
	if t.spans != nil {
		o.Tracer = t.spans.Tracer("github.com/outboard-run/outboard/internal/workflow")
	}
	t.engine, err = engine.Open(ctx, o)
	return t.engine, err
}
