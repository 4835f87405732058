package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/egress"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/node"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/network"
	"github.com/outboard-run/outboard/internal/train/object"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// The bounds of --max-calls.
const (
	defaultMaxCalls = 16384
	minMaxCalls     = 16
	maxMaxCalls     = 1 << 20
)

// The bounds of --max-executions.
const (
	minMaxExecutions = 1
	maxMaxExecutions = 1 << 20
)

type upOptions struct {
	join, token       string
	name              string
	listen, advertise string
	routes            string
	replaceAfter      time.Duration
	devices           deviceFilter
	nats, creds       string
	grpc, http        string
	httpHosts         []string
	clientTimeout     time.Duration
	models            string
	modelsShm         bool
	modelServers      string
	slowCall          time.Duration
	maxCalls          int
	maxExecutions     int
	sandbox           sandboxFlag
	outgoingPrivate   []string
	tenantLimits      limitsFlag
	leaseTTL          time.Duration
	objects           string
	probeBudget       outboard.Bytes
	logLevel          slog.Level
	jobs              string
}

func (o *upOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.join, "join", "", "join the pool of the node at `HOST:PORT`; on a member, look for its pool there")
	flags.StringVar(&o.token, "token", "", "`TOKEN` that 'outboard token' printed on a node of the pool")
	flags.StringVar(&o.name, "name", "", "name of this node in the pool (default the host's name)")
	flags.StringVar(&o.listen, "listen", ":7433", "`ADDR` for connections of other nodes")
	flags.StringVar(&o.advertise, "advertise", "", "`HOST:PORT` under which other nodes reach this one, if it differs from --listen")
	flags.StringVar(&o.routes, "routes", "", "`ADDR` for the pool's state between nodes (default the port after --listen's)")
	flags.Var(&o.devices, "devices", "which devices to offer: all, none, or those that match `SELECTOR` (default all)")
	flags.StringVar(&o.nats, "nats", "", "keep the pool's state on the NATS cluster at `URL`")
	flags.StringVar(&o.creds, "creds", "", "credentials `FILE` for --nats")
	flags.StringVar(&o.grpc, "grpc", "", "`ADDR` for plain gRPC of local programs, or none (default 127.0.0.1:7435, or another port)")
	flags.StringVar(&o.http, "http", "", "`ADDR` for HTTP requests to apps, or none (default 127.0.0.1:8080, or another port)")
	flags.StringSliceVar(&o.httpHosts, "http-host", nil, "host `NAME` for which requests to apps are served, beside localhost; *.NAME for TENANT.NAME with that tenant's apps")
	flags.DurationVar(&o.clientTimeout, "client-timeout", gateway.DefaultClientTimeout, "how long a client of apps or models may make the node wait for the rest of a request or for reading a response, beside a second for each 64 KiB")
	flags.StringVar(&o.models, "models", "", "`ADDR` for the interfaces of models beside --http, or none")
	flags.BoolVar(&o.modelsShm, "models-shm", false, "let clients of models register shared memory of this machine")
	flags.StringVar(&o.modelServers, "model-servers", "", "`FILE` with the commands or addresses of servers that execute models (vLLM, SGLang, llama-server, Triton)")
	flags.Var(&o.tenantLimits, "tenant-limits", "`LIMITS` of what each tenant holds on this node: requests=SIZE, arenas=SIZE, logs=SIZE, buckets=SIZE, memory=SIZE, and keeps in the pool's state: store=SIZE, with semicolons between")
	flags.StringSliceVar(&o.outgoingPrivate, "outgoing-private", nil, "private `ADDRESSES` that apps may send requests to, if their manifests say private: prefixes, addresses, ADDRESS:PORT (one of this machine needs its port)")
	flags.Var(&o.sandbox, "sandbox", "`SETTINGS` of the isolation of kernels: require=MECHANISMS, read=PATH, device=PATTERN, env=NAME, call=NUMBER, memory=SIZE, with semicolons between")
	flags.DurationVar(&o.replaceAfter, "replace-keeper-after", pool.DefaultReplaceAfter,
		"time after which another node keeps the pool's state in place of one of three that is gone; 0 for never")
	flags.StringVar(&o.jobs, "jobs", "none", "which programs of the pool's training jobs to run: none, confined, or trusted with all rights of this node's user")
	flags.StringVar(&o.objects, "objects", "", "keep datasets and checkpoints in the bucket `s3://BUCKET/PREFIX` too, with ?endpoint=URL&region=NAME behind it; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN are its credentials")
	flags.DurationVar(&o.leaseTTL, "lease-ttl", defaultLeaseTTL, "time after which the leases of a silent node end; the same on all nodes")
	flags.IntVar(&o.maxCalls, "max-calls", defaultMaxCalls, "most calls in flight on one connection of a program or another node; one service gets three quarters of them")
	flags.IntVar(&o.maxExecutions, "max-executions", engine.DefaultExecutions, "most executions of workflows of one tenant that run or wait on this node")
	flags.DurationVar(&o.slowCall, "slow-call", 0, "log calls that take longer (default none)")
	o.probeBudget = network.DefaultBudget
	flags.Var(&o.probeBudget, "probe-budget", "most bytes a minute for measuring the network to other nodes, as `SIZE`; 0 means none")
	flags.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "lowest `LEVEL` to log: debug, info, warn or error")
	markSettings(flags)
}

func newUpCommand(env *Env) *cobra.Command {
	var opts upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a node: offer this machine's devices, and use those of the pool",
		Long: `Run a node: offer this machine's devices, and use those of the pool.

Without flags the node founds a pool of its own, or joins the pool of its last start again. It
runs until it is interrupted or stopped with ` + "`outboard down`" + `.`,
		Example: `  outboard up
  outboard up --join harbour:7433 --token TOKEN
  outboard up --devices type=gpu --listen 10.0.0.4:7433
  outboard up --data /tmp/dinghy --name dinghy --listen 127.0.0.1:7500 --devices none`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUp(cmd.Context(), env, opts, cmd.Flags()) },
	}
	opts.addFlags(cmd.Flags())
	complete(cmd, "devices", env.completeOffer)
	complete(cmd, "log-level", completeWords("debug", "info", "warn", "error"))
	complete(cmd, "name", completeWords())
	complete(cmd, "jobs", completeWords("none", "confined", "trusted"))
	return cmd
}

const (
	defaultLeaseTTL = 15 * time.Second
	// minLeaseTTL leaves time for two renewals and an election of the pool's state.
	minLeaseTTL = 10 * time.Second
	// minReplaceAfter leaves time for a restart and an election.
	minReplaceAfter = 30 * time.Second
	// minClientTimeout is above the precision of the gateway's deadlines.
	minClientTimeout = 2 * time.Second
)

// check refuses values that no node can have. A member of a pool needs no token.
func (o *upOptions) check(member bool) error {
	switch {
	case o.token != "" && o.join == "", o.join != "" && o.token == "" && !member:
		return usage("--join and --token go together; `outboard token` on a node of the pool prints a token")
	case o.creds != "" && o.nats == "":
		return usage("--creds needs --nats URL")
	case o.replaceAfter != 0 && o.replaceAfter < minReplaceAfter:
		return usage("--replace-keeper-after %v: want %v or more, or 0 for never", o.replaceAfter, minReplaceAfter)
	case o.leaseTTL < minLeaseTTL:
		return usage("--lease-ttl %v: want %v or more", o.leaseTTL, minLeaseTTL)
	case o.clientTimeout < minClientTimeout:
		return usage("--client-timeout %v: want %v or more", o.clientTimeout, minClientTimeout)
	case o.maxCalls < minMaxCalls || o.maxCalls > maxMaxCalls:
		return usage("--max-calls %d: want %d to %d", o.maxCalls, minMaxCalls, maxMaxCalls)
	case o.maxExecutions < minMaxExecutions || o.maxExecutions > maxMaxExecutions:
		return usage("--max-executions %d: want %d to %d", o.maxExecutions, minMaxExecutions, maxMaxExecutions)
	}
	if err := egress.CheckPrivate(o.outgoingPrivate); err != nil {
		return usage("--outgoing-private %v", err)
	}
	return nil
}

// newNode returns a node with these options, which has not started.
func (o *upOptions) newNode(env *Env) (*node.Node, error) {
	if err := o.check(node.IsMember(env.config.data)); err != nil {
		return nil, err
	}
	objects, err := o.bucket(env)
	if err != nil {
		return nil, err
	}
	return node.New(node.Options{
		Data: env.config.data, Name: outboard.NodeID(o.name), Version: thisBuild().Version,
		Listen: o.listen, Advertise: o.advertise, Routes: o.routes, ReplaceAfter: o.replaceAfter,
		Offer: o.devices.fits,
		Join:  o.join, Token: o.token,
		NATS: o.nats, Creds: o.creds,
		GRPC: o.grpc, HTTP: o.http, HTTPHosts: o.httpHosts, Models: o.models, ModelsSharedMemory: o.modelsShm, ModelServers: o.modelServers, SlowCall: o.slowCall, MaxCalls: o.maxCalls, MaxExecutions: o.maxExecutions, LeaseTTL: o.leaseTTL,
		Sandbox: o.sandbox.sandbox, TenantLimits: o.tenantLimits.limits, OutgoingPrivate: o.outgoingPrivate, ClientTimeout: o.clientTimeout, ProbeBudget: o.probeBudget,
		Helper: env.Helper, OwnsProcess: true,
		Log:  slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: o.logLevel})),
		Jobs: o.jobs, Objects: objects,
	})
}

func runUp(ctx context.Context, env *Env, opts upOptions, flags *pflag.FlagSet) error {
	closeInheritedOnExec()
	n, err := opts.newNode(env)
	if err != nil {
		return err
	}
	shortSlices()
	return n.Run(ctx, func() {
		if err := env.config.remember(flags); err != nil {
			fmt.Fprintf(env.Stderr, "outboard: cannot save the settings, so the next start needs the same flags: %v\n", err)
		}
		printUp(env, n.Status())
	})
}

// bucket returns the bucket of --objects.
func (o *upOptions) bucket(env *Env) (object.Options, error) {
	if o.objects == "" {
		return object.Options{}, nil
	}
	b, err := env.parseBucket(o.objects)
	if err != nil {
		return b, usage("--objects: %w", err)
	}
	return b, nil
}

// printUp reports that the node is up, with commands to begin with.
func printUp(env *Env, s client.Status) {
	printSafe(env.Stderr, "node %s is up at %s with %d device(s); try `outboard status`, `outboard run -- PROGRAM`, `outboard token`\n",
		s.Node, s.Addr, s.Devices)
}

// deviceFilter is the value of --devices.
type deviceFilter struct {
	none     bool
	selector outboard.Selector
}

// Set, String and Type implement pflag.Value.
func (f *deviceFilter) Set(text string) error {
	if f.none = text == "none"; f.none || text == "all" || text == "" {
		f.selector = outboard.Selector{}
		return nil
	}
	return f.selector.Set(text)
}

func (f *deviceFilter) String() string {
	if f.none {
		return "none"
	}
	return f.selector.String()
}

// Type returns the name of the value in help texts.
func (f *deviceFilter) Type() string { return "selector" }

func (f *deviceFilter) fits(d outboard.Device) bool { return !f.none && f.selector.Match(d) }
