package network

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/lifecycle"
)

// DefaultBudget is how many bytes a node's probes may cost per minute.
const DefaultBudget = outboard.Bytes(1 << 20)

const (
	// interval is the time between two probes of a node.
	interval = 5 * time.Second
	// epochLength is how long the rotating peers stay.
	epochLength = 5 * time.Minute
	// publishEvery is the interval at which the links are written to the pool's state, linkTTL how
	// long they stay there.
	publishEvery = time.Minute
	linkTTL      = 10 * time.Minute
	// probeLimit is how long a probe may take.
	probeLimit = 4 * time.Second
	// forgetAfter is the age at which a peer's estimate is dropped.
	forgetAfter = 30 * time.Minute
)

// Options of a Prober.
type Options struct {
	Self outboard.NodeID
	// Budget is how many bytes the probes may cost per minute, both directions together; 0
	// means no probes.
	Budget outboard.Bytes
	// Peers returns the other nodes.
	Peers func() []Peer
	// Probe measures the path to a peer, for at most budget bytes.
	Probe func(ctx context.Context, p Peer, budget int) (Sample, error)
	// Publish writes this node's links to the pool's state, where they stay for ttl.
	Publish func(ctx context.Context, links []client.Link, ttl time.Duration) error
	// Metrics registers the measurements; nil omits them.
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Prober measures the network around a node. It is a service.
type Prober struct {
	opts    Options
	metrics *metrics

	mu        sync.Mutex
	estimates map[outboard.NodeID]*estimate
	turn      int
}

var _ lifecycle.Service = (*Prober)(nil)

// New creates a Prober that has not probed anything.
func New(opts Options) *Prober {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Prober{opts: opts, metrics: newMetrics(opts.Metrics), estimates: make(map[outboard.NodeID]*estimate)}
}

// Name implements lifecycle.Service.
func (p *Prober) Name() string { return "network probes" }

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context, ready func()) error {
	ready()
	if p.opts.Budget == 0 {
		<-ctx.Done()
		return nil
	}
	defer p.metrics.unregister(p.opts.Metrics)
	// A random delay keeps nodes that start together from probing together.
	timer := time.NewTimer(rand.N(interval / 10))
	defer timer.Stop()
	published := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		p.probeNext(ctx)
		if time.Since(published) >= publishEvery || p.isFirst() {
			published = time.Now()
			p.publish(ctx)
		}
		timer.Reset(interval*3/4 + rand.N(interval/2))
	}
}

// budget returns the largest cost of one probe, in bytes.
func (p *Prober) budget() int { return int(p.opts.Budget) * int(interval/time.Second) / 60 }

// probeNext probes the next peer in turn.
func (p *Prober) probeNext(ctx context.Context) {
	peers := choose(p.opts.Self, p.opts.Peers(), time.Now().Unix()/int64(epochLength/time.Second))
	if len(peers) == 0 {
		return
	}
	p.turn++
	peer := peers[p.turn%len(peers)]
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	sample, err := p.opts.Probe(ctx, peer, p.budget())
	p.metrics.bytes.Add(float64(sample.Bytes))
	if err != nil {
		p.metrics.failed.Inc()
		p.opts.Log.Debug("a probe failed", "peer", peer.ID, "error", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.estimates[peer.ID]
	if e == nil {
		e = &estimate{}
		p.estimates[peer.ID] = e
	}
	e.add(&sample, time.Now())
	p.metrics.set(e.link(p.opts.Self, peer.ID))
	p.forget()
}

// forget drops the estimates of peers that have not been measured for long.
func (p *Prober) forget() {
	for id, e := range p.estimates {
		if time.Since(e.measured) > forgetAfter {
			delete(p.estimates, id)
			p.metrics.remove(id)
		}
	}
}

// isFirst reports whether the first round of probes is under way, whose results are published at
// once.
func (p *Prober) isFirst() bool { return p.turn <= Peers }

// Links returns the estimates of this node's links.
func (p *Prober) Links() []client.Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]client.Link, 0, len(p.estimates))
	for id, e := range p.estimates {
		links = append(links, e.link(p.opts.Self, id))
	}
	Sort(links)
	return links
}

// RTT returns the measured round-trip time to a node, 0 if it is not known. A nil Prober knows
// none.
func (p *Prober) RTT(to outboard.NodeID) time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.estimates[to]
	if e == nil {
		return 0
	}
	rtt, _ := quartiles(e.rtts, 2)
	return rtt
}

func (p *Prober) publish(ctx context.Context) {
	links := p.Links()
	if len(links) == 0 {
		return
	}
	if err := p.opts.Publish(ctx, links, linkTTL); err != nil && ctx.Err() == nil {
		p.opts.Log.Debug("the links were not published", "error", err)
	}
}
