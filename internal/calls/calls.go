// Package calls is a node's part in the fabric: the managed process through which
// local programs call services, wherever in the pool those run.
//
// Programs connect to the node's calls socket over shared memory (fabric/shared);
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
	"github.com/outboard-run/outboard/fabric/framed"
	"github.com/outboard-run/outboard/fabric/plain"
	"github.com/outboard-run/outboard/fabric/policy"
	"github.com/outboard-run/outboard/fabric/router"
	"github.com/outboard-run/outboard/fabric/shared"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// Protocol is the TLS application protocol of calls between nodes.
const Protocol = "outboard-calls/1"

// Options of a Plane.
type Options struct {
	Registry *services.Registry
	Members  services.Members
	Self     outboard.NodeID
	// Socket is where local programs connect.
	Socket string
	// Plain is where programs that speak plain gRPC connect; nil: nowhere. It has no
	// TLS and no proof of who calls: loopback. The Plane closes it.
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

// A Plane is the managed process.
type Plane struct {
	opts     Options
	log      *slog.Logger
	registry *services.Registry
	table    policy.Table
	router   *router.Router
	programs *shared.Listener
	plain    *plain.Server

	mu     sync.Mutex
	local  map[string]*program // by the endpoint's ID
	peers  map[outboard.NodeID]*peer
	ways   map[string]*way // to gRPC servers that this node speaks for, by address
	names  map[string]bool // the services that the router has
	serial int

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open starts to serve.
func Open(_ context.Context, opts Options) (*Plane, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Plane{
		opts: opts, log: opts.Logger, registry: opts.Registry,
		local: map[string]*program{}, peers: map[outboard.NodeID]*peer{}, ways: map[string]*way{}, names: map[string]bool{},
	}
	p.router = router.New(router.Options{
		Policies: &p.table, Logger: opts.Logger, Registerer: opts.Metrics, Tracer: opts.Tracer, Slow: opts.Slow,
	})
	var err error
	p.programs, err = shared.Listen(opts.Socket, shared.Options{Handler: p.router, Logger: p.log})
	if err != nil {
		return nil, errors.Join(err, p.router.Close())
	}
	run, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.follow(time.Now())
	p.running.Go(func() { p.keepUp(run) })
	p.running.Go(func() { p.servePrograms(run) })
	p.plain = plain.NewServer(p.router, plain.Options{Logger: p.log, Descriptors: descriptors{p.registry}, Health: health{p}})
	if opts.Plain != nil {
		p.running.Go(p.servePlain)
	}
	return p, nil
}

// PlainAddr is where plain gRPC is served, "" for nowhere.
func (p *Plane) PlainAddr() string {
	if p == nil || p.opts.Plain == nil {
		return ""
	}
	return p.opts.Plain.Addr().String()
}

// servePlain serves programs that speak plain gRPC.
func (p *Plane) servePlain() {
	if err := p.plain.Serve(p.opts.Plain); err != nil {
		p.log.Error("plain gRPC is not served any more", "error", err)
	}
}

// Router is what all calls of this node's programs go through.
func (p *Plane) Router() call.Handler { return p.router }

// Close ends every call.
func (p *Plane) Close() error {
	p.stop()
	p.plain.Stop()
	p.running.Wait()
	err := errors.Join(p.router.Close(), p.hangUp())
	if removed := os.Remove(p.opts.Socket); removed != nil && !os.IsNotExist(removed) {
		err = errors.Join(err, removed)
	}
	return err
}
