// Package calls is a node's part in the fabric: the managed process through which
// local programs call services, wherever in the pool those run.
//
// Programs connect to the node's calls socket over shared memory (internal/fabric/shared);
// those that serve offer their services there. Programs without the fabric's
// library speak plain gRPC to a port. All their calls go through one router, which
// applies the pool's policies and picks an endpoint of those in the pool's table:
// a program on this node, a gRPC server that some node speaks for, or a program
// on another node, over TCP with TLS. Policies are applied once, on the caller's
// node: what other nodes send is delivered as it is.
package calls

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/fabric/router"
	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// Protocol is the TLS application protocol of calls between nodes.
const Protocol = "outboard-calls/1"

// Options of a Plane.
type Options struct {
	Registry *services.Registry
	Members  services.Members
	Self     outboard.NodeID
	// Offers takes what programs offer; nil: the Registry.
	Offers Offers
	// Process is this process's number among those that carry the node's calls, and
	// Link the way to another of them; nil: there is none.
	Process int
	Link    func(ctx context.Context, process int) (net.Conn, error)
	// Elsewhere says which endpoint has a stream that another process of this node
	// carries, "" for none. It may be nil.
	Elsewhere func(ctx context.Context, stream string) string
	// Socket is where local programs connect; empty: where Accept says.
	Socket string
	// Plain is where programs that speak plain gRPC connect; nil: nowhere, or where
	// Accept says. It has no TLS and no proof of who calls: loopback. The Plane
	// closes it.
	Plain net.Listener
	// TLS is what this node shows to another one, and demands of it.
	TLS func(outboard.Node) *tls.Config
	// Framed are for connections to other nodes.
	Framed framed.Options
	// Logger, Metrics and Tracer may be nil.
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	Tracer  trace.TracerProvider
	// Slow is how long a call may take before it is logged; 0: for ever.
	Slow time.Duration
}

// Offers is what tells the pool of endpoints that come and go.
type Offers interface {
	// Offer gives the endpoint its ID: e's own if it has one, or else previous if
	// the same program had that on another process, or else a new one.
	Offer(ctx context.Context, e services.Endpoint, previous string) (services.Endpoint, error)
	// Settled says that calls for the endpoint reach this process's program now.
	Settled(id string)
	Withdraw(ctx context.Context, id string) error
}

// A Plane is the managed process.
type Plane struct {
	opts     Options
	log      *slog.Logger
	registry *services.Registry
	offers   Offers
	table    policy.Table
	modules  policy.Modules
	router   *router.Router
	plain    *plain.Server
	flying   flying

	mu        sync.Mutex
	doors     doors
	connected map[*program]bool
	local     map[string]*program // by the endpoint's ID
	inbound   map[*remote.Conn]origin
	arriving  int // connections of nodes that have not shown who they are
	retiring  bool
	leaving   bool // retiring, and no program of this process is left
	stopped   bool // plain gRPC: it has ended its last call
	peers     map[outboard.NodeID]*peer
	near      map[int]*peer   // other processes of this node
	ways      map[string]*way // to gRPC servers that this node speaks for, by address
	names     map[string]bool // the services that the router has
	rules     balance.Rules   // of balancing

	life    context.Context //nolint:containedctx // of the goroutines below
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open starts to follow the pool, and to serve where opts say.
func Open(_ context.Context, opts Options) (*Plane, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Plane{
		opts: opts, log: opts.Logger, registry: opts.Registry, offers: opts.Offers,
		connected: map[*program]bool{}, local: map[string]*program{}, inbound: map[*remote.Conn]origin{},
		peers: map[outboard.NodeID]*peer{}, near: map[int]*peer{}, ways: map[string]*way{}, names: map[string]bool{},
	}
	if p.offers == nil {
		p.offers = &direct{registry: opts.Registry, self: opts.Self}
	}
	p.router = router.New(router.Options{
		Policies: &p.table, Logger: opts.Logger, Registerer: opts.Metrics, Tracer: opts.Tracer, Slow: opts.Slow,
		Elsewhere: opts.Elsewhere,
	})
	p.plain = plain.NewServer(counted{p, p.router, p.router}, plain.Options{
		Logger: p.log, Descriptors: descriptors{p.registry}, Health: health{p},
	})
	p.life, p.stop = context.WithCancel(context.Background())
	// The pool's policies are in force before the first call.
	applied := p.applyPolicies(understood{})
	p.follow()
	p.running.Go(func() { p.keepUp(p.life, applied) })
	if opts.Socket != "" {
		programs, err := shared.Listen(opts.Socket, p.forPrograms())
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.open(programs, opts.Plain)
	}
	return p, nil
}

func (p *Plane) forPrograms() shared.Options { return shared.Options{Handler: p.router, Logger: p.log} }

// Router is what all calls of this node's programs go through.
func (p *Plane) Router() call.Handler { return p.router }

// Close ends every call.
func (p *Plane) Close() error {
	p.stop()
	p.plain.Stop()
	p.running.Wait()
	err := errors.Join(p.router.Close(), p.hangUp())
	if p.opts.Socket == "" {
		return err
	}
	if removed := os.Remove(p.opts.Socket); removed != nil && !os.IsNotExist(removed) {
		err = errors.Join(err, removed)
	}
	return err
}
