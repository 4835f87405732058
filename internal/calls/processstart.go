package calls

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/connmetrics"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/traces"
)

// startLimit is how long a process may take to start until it can carry calls.
const startLimit = 30 * time.Second

func (p *process) start(config *Config) (*Ready, error) {
	if config == nil || config.Handover != Handover {
		return nil, outboard.Errorf(outboard.Protocol, "take over calls",
			"the node hands over by version %d, %s by version %d: restart the node to change to it", handoverOf(config), p.opts.Version, Handover)
	}
	p.config = *config
	if p.opts.Level != nil {
		p.opts.Level.Set(p.config.Level)
	}
	ctx, cancel := context.WithTimeout(p.life, startLimit)
	defer cancel()
	if err := p.open(ctx); err != nil {
		return nil, fmt.Errorf("take over calls: %w", err)
	}
	return &Ready{PID: os.Getpid(), Version: p.opts.Version}, nil
}

func handoverOf(c *Config) int {
	if c == nil {
		return 0
	}
	return c.Handover
}

func (p *process) open(ctx context.Context) (err error) {
	if p.identity, err = authority.LoadShared(p.config.Identity); err != nil {
		return err
	}
	if p.state, err = p.openState(ctx); err != nil {
		return err
	}
	p.members, err = pool.Follow(ctx, pool.Options{
		State: p.state, Identity: p.identity, Self: outboard.Node{Boot: p.config.Boot},
		Logger: p.log, Heartbeat: p.config.Heartbeat,
	})
	if err != nil {
		return err
	}
	p.registry, err = services.Open(ctx, services.Options{
		State: p.state, Members: p.members, Self: p.config.Self, Boot: p.config.Boot, Reader: true, Logger: p.log,
	})
	if err != nil {
		return err
	}
	if p.spans, err = traces.Open(ctx, string(p.config.Self), p.log); err != nil {
		return err
	}
	plane, err := Open(ctx, p.planeOptions())
	if err != nil {
		return err
	}
	p.tables = p.handler(plane)
	p.plane = plane
	return nil
}

func (p *process) planeOptions() Options {
	o := Options{
		Registry: p.registry, Members: p.members, Self: p.config.Self,
		Offers: &nodeOffers{p.node}, Process: p.config.Process, Link: p.link, Elsewhere: p.locateStream, Identify: p.identify, Admit: p.admit,
		TLS: func(to outboard.Node) *tls.Config { return p.identity.ClientTLS(to.ID, to.Fingerprint, Protocol) },
		Dialed: func(to outboard.Node, nc net.Conn) error {
			return authority.CloseOnRevoke(p.identity, to.Fingerprint, nc)
		},
		Framed: p.framed(nil), Logger: p.log, Metrics: p.metrics, Slow: p.config.Slow, MaxCalls: p.config.MaxCalls, ClientTimeout: p.config.ClientTimeout,
	}
	if p.spans != nil {
		o.Tracer = p.spans
	}
	return o
}

// framed returns the options of connections to other nodes.
func (p *process) framed(config *tls.Config) framed.Options {
	return framed.Options{
		TLS: config, DeadAfter: p.config.DeadAfter, Logger: p.log,
		Observer: connmetrics.Observer(p.labelled()), MaxStreams: p.config.MaxCalls,
	}
}

// labelled returns a registerer with a label, for metrics that the node itself has as well.
func (p *process) labelled() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"process": "calls"}, p.metrics)
}

func (p *process) openState(ctx context.Context) (*state.State, error) {
	return state.Attach(ctx, state.AttachOptions{
		Dial: func() (net.Conn, error) { return p.node.OpenStream(msgState, nil) },
		Name: p.config.stateName(), Logger: p.log,
	})
}
