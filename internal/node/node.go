// Package node is the daemon that `outboard up` runs: it joins the pool, the fabric and the planes.
//
// A [Node] is the composition root: it opens the planes in order and the parts that join them, each
// of which owns its state:
//
//	folder           the data folder, locked for one node
//	localSockets     sockets in the data folder: sessions, devices, the pool's state
//	sessionServer    sessions of programs on this node's devices
//	leaseGuard       ends sessions whose lease no longer stands
//	peerServer       the TCP port for other nodes, where the TLS application protocol
//	                 distinguishes joining, state, calls and sessions
//	grants           the data with which programs use their leases
//	deviceBroker     leases devices for functions
//	ingress          the HTTP port for apps
//	models           models: their repository, workers, and interfaces
//	jobs             training jobs: those submitted here, and the ranks that this node runs
//	tenantKeeper     a process for each tenant that has an app
//	artifactCollector  removes unreferenced files
//	poolAPI, leaseAPI, callsAPI, appsAPI, artifactAPI   the local API
package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/fabric/connmetrics"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/health"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/lograte"
	"github.com/outboard-run/outboard/internal/model/keys"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/network"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/quota"
	"github.com/outboard-run/outboard/internal/tenant/host"
	"github.com/outboard-run/outboard/internal/train/job"
	"github.com/outboard-run/outboard/internal/train/object"
)

// Options are the options of a node. Only Data is required.
type Options struct {
	// Data is the node's folder. It holds the node's identity and data.
	Data string
	// Name is the node's name; empty means its previous name, or the host's.
	Name    outboard.NodeID
	Version string
	// Listen is the address for other nodes; empty means ":7433".
	Listen string
	// Advertise is the address that other nodes get instead of Listen.
	Advertise string
	// Routes is the address of the embedded state; empty means the port after Listen's.
	Routes string
	// ReplaceAfter is how long one of the three nodes that hold the pool's state may be absent
	// before another node takes over its replica; 0: for ever.
	ReplaceAfter time.Duration
	// Offer reports whether the node lends a device; nil means all devices.
	Offer func(outboard.Device) bool
	// Join and Token make the node a member of the pool of the node at Join.
	Join, Token string
	// NATS and Creds name an existing NATS cluster for the pool's state.
	NATS, Creds string
	// OutgoingPrivate are the private addresses to which apps may send requests: prefixes,
	// addresses, and addresses with a port.
	OutgoingPrivate []string
	// TenantLimits bound the bytes that each tenant may hold on this node.
	TenantLimits quota.Limits
	// ClientTimeout is how long a client of an app or a model may make this node wait for the rest
	// of its request, or for reading a response; 0 means 30 s.
	ClientTimeout time.Duration
	// Sandbox changes the isolation of the workers that execute kernels.
	Sandbox lend.Sandbox
	// Helper is the command that runs a helper process, whose name follows;
	// empty means this program's own `internal` verb.
	Helper []string
	Log    *slog.Logger
	// LeaseTTL is how long a lease lives without being renewed; 0 means the pool's default.
	// Heartbeat is the interval of the node's heartbeats.
	LeaseTTL, Heartbeat time.Duration
	// GRPC is the address at which local programs use plain gRPC, "HOST:PORT" or "none"; empty
	// means 127.0.0.1:7435, or another port if that is taken. SlowCall is how long a call may take
	// before it is logged; 0: never.
	GRPC     string
	SlowCall time.Duration
	// MaxCalls bounds the calls in flight on one connection of a program or another node; 0:
	// 16384.
	MaxCalls int
	// MaxExecutions bounds the executions of one tenant that run or wait on this node; 0 means
	// 11,000.
	MaxExecutions int
	// HTTP is the address for requests to apps, "HOST:PORT" or "none"; empty means 127.0.0.1:8080,
	// or another port if that is taken.
	HTTP string
	// HTTPHosts are host names for which requests to apps are served, besides those of the loopback
	// interface. "*.NAME" stands for TENANT.NAME, which serves only that tenant's apps. Empty means
	// no others if HTTP is a loopback address, and all names otherwise.
	HTTPHosts []string
	// Models is a further address for the interfaces of models, besides HTTP, "HOST:PORT"; empty
	// means none. ModelsSharedMemory lets their clients register system shared memory.
	Models             string
	ModelsSharedMemory bool
	// ModelServers is a file with the servers that execute models of the engine "process".
	ModelServers string
	// Jobs determines which ranks of training jobs this node runs: "none", the default, "confined"
	// or "trusted" (package job).
	Jobs string
	// Objects is the bucket for datasets and checkpoints; without a name only the nodes store them.
	Objects object.Options
	// CallsInside has this process carry the calls of programs, instead of a separate process.
	CallsInside bool
	// OwnsProcess says that this process is the node's alone, which may change its control group.
	OwnsProcess bool
	// DeadAfter is how long a silent peer counts as alive; 0 means the fabric's default.
	DeadAfter time.Duration
	// ProbeBudget is how many bytes per minute the measurements of the network to other nodes
	// may cost; 0 means none.
	ProbeBudget outboard.Bytes
}

const (
	defaultListen = ":7433"
	ownProgram    = "/proc/self/exe"
)

func (o *Options) setDefaults() {
	if o.Data == "" {
		o.Data = client.DefaultData()
	}
	if o.Listen == "" {
		o.Listen = defaultListen
	}
	if o.Offer == nil {
		o.Offer = func(outboard.Device) bool { return true }
	}
	if len(o.Helper) == 0 {
		o.Helper = []string{ownProgram, "internal"}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Jobs == "" {
		o.Jobs = string(job.ModeNone)
	}
	if o.Version == "" {
		o.Version = "devel"
	}
}

func (o *Options) validate() error {
	const op = "node"
	if err := o.checkAddresses(); err != nil {
		return err
	}
	if _, err := job.ParseMode(o.Jobs); err != nil {
		return err
	}
	if o.Join == "" && o.Token != "" || o.Join != "" && o.Token == "" && !IsMember(o.Data) {
		return outboard.Errorf(outboard.Invalid, op, "an address to join at and a token go together")
	}
	if o.Name != "" {
		return authority.CheckName(o.Name)
	}
	return nil
}

// A Node is the composition of the planes on one machine. It is a service, and runs once.
type Node struct {
	opts     Options
	log      *slog.Logger
	registry *prometheus.Registry
	health   *health.Board
	started  time.Time
	stop     chan struct{}
	stopOnce sync.Once

	// The following fields are set while the services start, in their order, and only read
	// afterwards.
	folder    *folder
	listener  net.Listener
	identity  *authority.Identity
	self      outboard.Node
	devices   []offeredDevice
	state     *state.State
	host      *lend.Host
	pool      *pool.Pool
	services  *services.Registry
	calls     *calls.Host
	apps      *catalog.Catalog
	artifacts *artifact.Store
	groups    *cgroup.Tree // of workers and tenants' processes
	tenants   *host.Host
	sockets   *localSockets
	sessions  *sessionServer
	grants    *grants
	peers     *peerServer
	broker    *deviceBroker
	ingress   *ingress
	prober    *network.Prober
	lender    stateLender
	models    *models
	keys      *keys.Keys
	jobs      jobsPointer

	modelFiles modelFiles
	identities identities
	report     *healthReport // set with the state
}

var _ lifecycle.Service = (*Node)(nil)

// New returns a node that has not started anything.
func New(opts Options) (*Node, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.Log = slog.New(lograte.NewHandler(opts.Log.Handler())) // peers and clients cause warnings
	n := &Node{
		opts: opts, log: opts.Log.With("plane", "node"), registry: prometheus.NewRegistry(), health: &health.Board{},
		started: time.Now(), stop: make(chan struct{}), identities: identities{models: rand.Text()},
	}
	registerProcess(n.registry, opts.Version)
	return n, nil
}

// Name implements lifecycle.Service.
func (n *Node) Name() string { return "node" }

// Run runs the node until ctx ends or a request on the local API stops it.
func (n *Node) Run(ctx context.Context, ready func()) error {
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		select {
		case <-n.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	up := false
	err := lifecycle.Run(ctx, func() {
		up = true
		n.log.Info("node is up", "addr", n.self.Addr, "devices", len(n.devices))
		if ready != nil {
			ready()
		}
	},
		lifecycle.Hold("data folder", n.openData),
		lifecycle.Hold("listen", n.openListener),
		lifecycle.Hold("state", n.openState),
		lifecycle.Hold("control groups", n.openGroups),
		lifecycle.Hold("devices", n.openDevices),
		lifecycle.Hold("pool", n.openPool),
		lifecycle.Hold("services", n.openServices),
		lifecycle.Hold("calls", n.openCalls),
		lifecycle.Func("state for helpers", func(ctx context.Context, ready func()) error {
			n.lender.sockets, n.lender.state, n.lender.node, n.lender.log = n.sockets, n.state, n.self.ID, n.log
			return n.lender.run(ctx, ready)
		}),
		lifecycle.Hold("apps", n.openApps),
		lifecycle.Hold("keys of models", n.openKeys),
		lifecycle.Hold("artifacts", n.openArtifacts),
		lifecycle.Hold("models", n.openModels),
		lifecycle.Hold("jobs", func(ctx context.Context) (lifecycle.Resource, error) { return openJobs(ctx, n) }),
		lifecycle.Func("models of functions", func(ctx context.Context, ready func()) error { return n.models.runFunctions(ctx, ready) }),
		lifecycle.Hold("tenants", n.openTenants),
		lifecycle.Func("leases' guard", func(ctx context.Context, ready func()) error {
			return (&leaseGuard{pool: n.pool, host: n.host}).run(ctx, ready)
		}),
		lifecycle.Func("sessions", func(ctx context.Context, ready func()) error {
			return n.sockets.refusing(ownsForeign(n)).serve(ctx, SessionSocket, ipc.Listen, ready, n.sessions.serveLocal)
		}),
		lifecycle.Func("fabric", func(ctx context.Context, ready func()) error { return n.peers.run(ctx, ready) }),
		lifecycle.Func("network probes", func(ctx context.Context, ready func()) error { return n.prober.Run(ctx, ready) }),
		lifecycle.Func("functions' devices", func(ctx context.Context, ready func()) error {
			return n.sockets.serve(ctx, DevicesSocket, ipc.Listen, ready, n.broker.serve)
		}),
		lifecycle.Func("bypasses to models", func(ctx context.Context, ready func()) error {
			return n.sockets.serve(ctx, ModelBypassSocket, ipc.Listen, ready, n.models.serveBypass)
		}),
		lifecycle.Func("tenants' keeper", func(ctx context.Context, ready func()) error {
			return (&tenantSupervisor{apps: n.apps, pool: n.pool, tenants: n.tenants}).run(ctx, ready)
		}),
		lifecycle.Func("health", func(ctx context.Context, ready func()) error {
			return (&processHealth{calls: n.calls, tenants: n.tenants, board: n.health}).run(ctx, ready)
		}),
		lifecycle.Func("artifacts' collector", func(ctx context.Context, ready func()) error {
			return collectorOf(n).run(ctx, ready)
		}),
		lifecycle.Func("models of other nodes", func(ctx context.Context, ready func()) error { return n.models.runPeers(ctx, ready) }),
		lifecycle.Func("models' port", func(ctx context.Context, ready func()) error { return n.models.runPort(ctx, ready) }),
		lifecycle.Func("gateway", func(ctx context.Context, ready func()) error { return n.ingress.run(ctx, ready) }),
		lifecycle.Func("local API", n.serveAPI),
		lifecycle.Func("stop", func(ctx context.Context, ready func()) error {
			ready()
			<-ctx.Done()
			n.log.Info("node stops: it ends accepted requests first, for 30 s at most", "reason", n.stopReason(caller))
			n.state.BeginStop()
			return nil
		}),
	)
	if up {
		n.log.Info("node has stopped")
	}
	return err
}

// stopReason returns why a node whose caller passed ctx to Run stops.
func (n *Node) stopReason(ctx context.Context) string {
	if ctx.Err() != nil {
		return context.Cause(ctx).Error()
	}
	select {
	case <-n.stop:
		return "outboard down"
	default:
		return "a part of it has failed"
	}
}

// requestStop makes Run return.
func (n *Node) requestStop() { n.stopOnce.Do(func() { close(n.stop) }) }

// Status describes the node. It is complete once the node is ready.
func (n *Node) Status() client.Status {
	var keepers []outboard.NodeID
	for _, name := range state.Keepers(n.state) {
		keepers = append(keepers, outboard.NodeID(name))
	}
	return client.Status{
		Keepers: keepers,
		Node:    n.self.ID, Version: n.opts.Version, Addr: n.self.Addr, Data: n.opts.Data,
		PID: os.Getpid(), Started: n.started, Devices: len(n.devices), GRPC: n.calls.PlainAddr(),
		HTTP: n.ingress.addr(), Models: n.models.addr(), Waiting: n.pool.Queue(), Clocks: pool.ClockOffsets(n.pool), Problems: n.report.problems(),
	}
}

func (n *Node) openData(context.Context) (lifecycle.Resource, error) {
	f, err := openFolder(n.opts.Data)
	n.folder = f
	return f, err
}

func (n *Node) openListener(ctx context.Context) (lifecycle.Resource, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", n.opts.Listen)
	if err != nil {
		return nil, outboard.Errorf(outboard.Conflict, "", "%w: name another address with --listen", err)
	}
	n.listener = listener
	return once{listener}, nil
}

// once is a listener whose second Close returns no error.
type once struct{ net.Listener }

func (l once) Close() error {
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// IsMember reports whether the node of a data folder belongs to a pool.
func IsMember(data string) bool { return authority.Exists(filepath.Join(data, poolDir)) }

// openState loads or creates the node's identity and opens the pool's state.
func (n *Node) openState(ctx context.Context) (lifecycle.Resource, error) {
	addr := advertised(n.opts.Advertise, n.listener.Addr())
	routes, err := routesAddr(n.opts.Routes, n.opts.Listen, n.listener.Addr())
	if err != nil {
		return nil, err
	}
	enter := pool.EnterOptions{
		Dir: n.folder.at(poolDir), Name: n.opts.Name, Addr: addr,
		RouteListen: routes, RouteAdvertise: routesAdvertised(routes, addr), ReplaceAfter: n.opts.ReplaceAfter,
		Join: n.opts.Join, Token: n.opts.Token, NATSURL: n.opts.NATS, NATSCreds: n.opts.Creds,
		TenantStore: n.opts.TenantLimits[quota.Store], Logger: n.opts.Log.With("plane", "pool"),
	}
	switch {
	case !authority.Exists(enter.Dir):
		enter.Name = n.opts.name()
	case n.opts.Token != "":
		n.log.Info("this node belongs to a pool already: the token was not used")
	}
	id, s, err := pool.Enter(ctx, enter)
	if err != nil {
		return nil, err
	}
	n.identity, n.state = id, s
	n.self = outboard.Node{
		ID: id.Name(), Fingerprint: id.Fingerprint(), Version: n.opts.Version,
		Addr: addr, Boot: newBoot(), Started: n.started,
	}
	n.log = n.log.With("node", n.self.ID)
	n.report = &healthReport{board: n.health, sources: map[string]healthSource{
		"membership": membershipHealth{id}, "state": s, "copies": state.Growth{State: s}, "disk": &diskHealth{dir: n.folder.path},
	}}
	n.registry.MustRegister(n.report)
	return s, nil
}

// openDevices lists the machine's devices and prepares to lend them.
func (n *Node) openDevices(ctx context.Context) (lifecycle.Resource, error) {
	probed, err := probe(ctx, n.opts.Helper)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		// A machine whose drivers are broken can still use the pool.
		n.log.Error("this machine's devices cannot be offered", "error", err)
	}
	n.devices = offerDevices(n.self.ID, probed, n.opts.Offer)
	n.host, err = lend.Open(ctx, lend.Options{
		Sandbox: n.opts.Sandbox, Groups: n.groups,
		Dir: n.folder.path, Command: append(append([]string(nil), n.opts.Helper...), "worker"),
		Log: n.opts.Log.With("plane", "accel", "node", n.self.ID), Metrics: n.registry,
	})
	if err != nil {
		return nil, err
	}
	if n.host.Refused() != nil {
		n.devices = nil // the host has logged the reason
	}
	for i := range n.devices {
		d := &n.devices[i].Device
		d.Sandbox = n.host.Isolation()
		n.self.Devices = append(n.self.Devices, *d)
		n.log.Info("device is offered", "device", d.ID, "name", d.Name, "memory", d.Memory.String())
	}
	n.sockets = &localSockets{
		folder: n.folder, owns: ownsProcess(n.host, &n.jobs), tenantOf: n.identities.tenantOf, tenantConns: maxTenantConns, log: n.log, health: n.health,
	}
	return n.host, nil
}

// openPool joins the pool, and creates the parts that lend devices to it.
func (n *Node) openPool(ctx context.Context) (lifecycle.Resource, error) {
	p, err := pool.Open(ctx, pool.Options{
		State: n.state, Identity: n.identity, Self: n.self,
		Logger: n.opts.Log.With("plane", "pool", "node", n.self.ID), Metrics: n.registry,
		Heartbeat: n.opts.Heartbeat, LeaseTTL: n.opts.LeaseTTL,
		Distance: func(id outboard.NodeID) time.Duration { return n.prober.RTT(id) },
	})
	if err != nil {
		return nil, err
	}
	n.pool = p
	n.report.sources["identity"] = pool.Clones(p)
	n.sessions = &sessionServer{self: n.self.ID, pool: p, host: n.host, devices: n.devices, log: n.log}
	n.grants = &grants{self: n.self.ID, pool: p, identity: n.identity}
	n.peers = &peerServer{
		listener: n.listener, identity: n.identity, pool: p, sessions: n.sessions, refused: registerRefused(n.registry), jobs: &n.jobs,
		framed: framed.Options{DeadAfter: n.opts.DeadAfter, Logger: n.log, Observer: connmetrics.Observer(n.registry)},
		known:  acceptor.NewSlots(maxPeers), health: n.health, log: n.log,
	}
	n.prober = n.newProber()
	return p, nil
}

// newBoot returns the name of one run of a node.
func newBoot() string {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// name returns the node's name: the option, or else the host's name with each invalid character
// replaced by '-'.
func (o *Options) name() outboard.NodeID {
	if o.Name != "" {
		return o.Name
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, host), "-")
	if authority.CheckName(outboard.NodeID(name)) != nil {
		return "node"
	}
	return outboard.NodeID(name)
}
