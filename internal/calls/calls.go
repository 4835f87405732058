// Package calls is a node's part in the fabric: the managed process through which local programs
// call services, anywhere in the pool.
//
// Programs connect to the node's calls socket over shared memory (internal/fabric/shared); programs
// that serve offer their services there. Programs without the fabric's library speak plain gRPC to
// a port. All their calls go through one router, which applies the pool's policies and picks an
// endpoint from the pool's table: a program on this node, a gRPC server that some node speaks for,
// or a program on another node, over TCP with TLS. Policies are applied once, on the caller's node:
// calls that other nodes forward are delivered unchanged.
//
// A [Plane] is composed of parts that each own their state:
//
//	listeners    where programs connect
//	entrance     the identity of a caller, and the services that it may call
//	programs     the connected programs and the endpoints that they offer
//	inbound      connections of other nodes and of sibling processes, which bring calls
//	delivery     hands inbound calls to the endpoints that they name
//	policies     the policies and balancing rules in force
//	routes       keeps the router's services in line with the pool's table
//	transports   the transport of every endpoint, and the connections behind it
//	inFlight     counts the calls that the process carries
//
// [Run] is the process around a Plane, [Host] the node's side of it: it starts processes, has a new
// process take over from the old one, and adds up their counters.
package calls

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/fabric/router"
	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// Protocol is the TLS application protocol of calls between nodes.
const Protocol = "outboard-calls/1"

// Options are the options of a Plane.
type Options struct {
	Registry *services.Registry
	Members  services.Members
	Self     outboard.NodeID
	// Offers publishes the endpoints of programs; nil: the Registry.
	Offers Offers
	// Process is this process's number among the processes that carry the node's calls, and Link
	// connects to another of them; nil: there is none.
	Process int
	Link    func(ctx context.Context, process int) (net.Conn, error)
	// Elsewhere returns the endpoint of a stream that another process of this node
	// carries, "" for none. It may be nil.
	Elsewhere func(ctx context.Context, stream string) string
	// Socket is the path of the socket to which local programs connect; empty: see Accept.
	Socket string
	// Plain is the listener to which programs that speak plain gRPC connect; nil: none, or see
	// Accept. It has no TLS and no proof of the caller's identity: it must be on loopback. The
	// Plane closes it.
	Plain net.Listener
	// Identify checks the credentials of programs; nil: no credential proves an identity.
	Identify Identifier
	// Admit decides about each process that connects to Socket; nil: all are programs.
	Admit Admitter
	// TLS returns the configuration for a connection to another node.
	TLS func(outboard.Node) *tls.Config
	// Dialed, when set, gets each new connection to another node before the handshake. An error
	// ends the dial.
	Dialed func(outboard.Node, net.Conn) error
	// Framed configures connections to other nodes.
	Framed framed.Options
	// Logger, Metrics and Tracer may be nil.
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	Tracer  trace.TracerProvider
	// Slow is how long a call may take before it is logged; 0: never.
	Slow time.Duration
	// ClientTimeout is how long a client of plain gRPC may make the node wait; 0: 30 s.
	ClientTimeout time.Duration
	// MaxCalls bounds the calls in flight on one connection each way, a program's or another
	// node's; 0: 16384. One service gets three quarters of them at most.
	MaxCalls int
}

// Offers publishes endpoints in the pool's table.
type Offers interface {
	// Offer publishes an endpoint and returns it with its ID: e's own if it has one; or else
	// previous, if that was the ID of the same program on another process; or else a new one.
	Offer(ctx context.Context, e services.Endpoint, previous string) (services.Endpoint, error)
	// Settled reports to the node that calls for the endpoint now reach its program through this
	// process.
	Settled(id string)
	Withdraw(ctx context.Context, id string) error
}

// A Plane is the managed process: the composition of its parts.
type Plane struct {
	opts       Options
	log        *slog.Logger
	life       *lifetime
	router     *router.Router
	plain      *plain.Server
	inFlight   *inFlight
	policies   *policies
	programs   *programs
	inbound    *inbound
	transports *transports
	routes     *routes
	listeners  *listeners
}

// Open starts a Plane: it follows the pool's table, and serves on the sockets of opts.
func Open(_ context.Context, opts Options) (*Plane, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Offers == nil {
		opts.Offers = &registryOffers{registry: opts.Registry, self: opts.Self}
	}
	p := &Plane{opts: opts, log: opts.Logger, life: newLifetime(), inFlight: &inFlight{}}
	p.policies = newPolicies(opts.Registry, p.log)
	p.router = router.New(router.Options{
		Policies: &p.policies.table, Logger: opts.Logger, Registerer: opts.Metrics, Tracer: opts.Tracer, Slow: opts.Slow,
		Elsewhere: opts.Elsewhere, Node: string(opts.Self),
	})
	calls := p.inFlight.counting(p.router)
	p.programs = newPrograms(opts, p.life, calls)
	p.transports = newTransports(opts, p.life, p.programs)
	p.inbound = newInbound(p.life, p.inFlight.counting(&delivery{p.transports, p.life}), p.log)
	p.routes = newRoutes(opts, p.router, p.transports, p.policies)
	p.programs.changed = p.routes.sync
	p.programs.remoteCallers = func() bool { return !p.inbound.noNodes() }
	refused := newPlainRefusals()
	p.plain = plain.NewServer(&entrance{handler: calls}, plain.Options{
		Logger: p.log, Descriptors: descriptors{opts.Registry}, Health: health{opts.Registry, opts.Members},
		Refused:  func(reason string) { refused.WithLabelValues(reason).Inc() },
		MaxCalls: opts.MaxCalls, ClientTimeout: opts.ClientTimeout, ClientTimeoutSetting: "`outboard up --client-timeout`",
	})
	registerPlain(opts.Metrics, p.plain, refused)
	p.listeners = &listeners{}
	// Put the pool's policies in force before the first call.
	p.policies.apply()
	p.routes.sync()
	p.life.Go(func() { p.routes.keepInSync(p.life.ctx) })
	if opts.Socket != "" {
		socket, err := shared.Listen(opts.Socket, p.sharedOptions())
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.listen(socket, opts.Plain)
	}
	return p, nil
}

func (p *Plane) sharedOptions() shared.Options {
	return shared.Options{Handler: p.router, Logger: p.log, MaxCalls: p.opts.MaxCalls}
}

// Router returns the handler of all calls of this node's programs.
func (p *Plane) Router() call.Handler { return p.router }

// Parse checks a text of policies against the services that the pool knows.
func (p *Plane) Parse(name string, text []byte) (*policy.Set, error) {
	return p.policies.parse(name, text)
}

// Close ends every call.
func (p *Plane) Close() error {
	p.life.cancel()
	p.plain.Stop()
	p.life.running.Wait()
	err := errors.Join(p.router.Close(), p.transports.close())
	if p.opts.Socket == "" {
		return err
	}
	if removed := os.Remove(p.opts.Socket); removed != nil && !os.IsNotExist(removed) {
		err = errors.Join(err, removed)
	}
	return err
}
