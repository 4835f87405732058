package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// Keys of the table.
const (
	nodePrefix  = "nodes/"
	leasePrefix = "leases/"
	queuePrefix = "queue/"
	tokenPrefix = "tokens/"
	// revokedPrefix precedes the fingerprints of the keys of removed nodes. identityPrefix precedes
	// the names of the pool's nodes; its values are the fingerprints of their keys.
	revokedPrefix  = "revoked/"
	identityPrefix = "identities/"
)

// Options configures a node's membership in a pool.
type Options struct {
	// State is the pool's table. Close leaves it open.
	State *state.State
	// Identity is the node's key and certificate. Self's ID and Fingerprint are taken from it.
	Identity *authority.Identity
	// Self is this node's record.
	Self outboard.Node
	// Logger logs nodes that join and leave. The default discards.
	Logger *slog.Logger
	// Metrics registers the pool's counters. Nil omits them.
	Metrics prometheus.Registerer

	// Heartbeat is the interval at which the node's record is written, 2 s by default. NodeTTL
	// is how long a record is valid without a heartbeat, 6 s by default.
	Heartbeat, NodeTTL time.Duration
	// Distance returns the measured round-trip time to a node, 0 if it is not known. Nil means
	// that no distance is known.
	Distance func(outboard.NodeID) time.Duration
	// LeaseTTL is how long a lease is valid without renewal, 15 s by default.
	LeaseTTL time.Duration
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 2 * time.Second
	}
	if o.NodeTTL == 0 {
		o.NodeTTL = 3 * o.Heartbeat
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 15 * time.Second
	}
}

func (o *Options) validate() error {
	switch {
	case o.State == nil:
		return outboard.Errorf(outboard.Invalid, "open pool", "no state")
	case o.Identity == nil:
		return outboard.Errorf(outboard.Invalid, "open pool", "no identity")
	case o.Self.Boot == "":
		return outboard.Errorf(outboard.Invalid, "open pool", "the node's record has no boot")
	}
	return nil
}

// Pool is a node's membership in a pool.
type Pool struct {
	leaser
	id *authority.Identity

	selfMu sync.Mutex // guards self, and orders the writes of the node's record
	self   outboard.Node
	clones *CloneWatch
	tokens tokenCounts

	stop    context.CancelFunc
	running sync.WaitGroup
	close   func() error
}

// Open makes the node a member: it maintains the node's record and watches the table. It
// returns when the first view of the pool is complete.
func Open(ctx context.Context, opts Options) (*Pool, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.Self.ID, opts.Self.Fingerprint = opts.Identity.Name(), opts.Identity.Fingerprint()
	p := &Pool{
		leaser: leaser{opts: opts, state: opts.State, log: opts.Logger, view: newView(opts)},
		id:     opts.Identity, self: opts.Self,
	}
	p.clones = &CloneWatch{boot: p.view.boot}
	p.close = sync.OnceValue(p.shutdown)
	m, err := newMetrics(opts.Metrics, p.view, func() map[string]int64 { return state.StoredByTenant(p.state) })
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	p.metrics = m
	run, stop := context.WithCancel(context.Background())
	p.stop = stop
	if err := p.start(ctx, run); err != nil {
		return nil, errors.Join(fmt.Errorf("open pool: %w", err), p.Close())
	}
	return p, nil
}

func (p *Pool) start(ctx, run context.Context) error {
	if err := p.state.Watch(run, p.view.apply); err != nil {
		return err
	}
	revision, err := p.writeRecord(ctx)
	if err != nil {
		return err
	}
	if err := p.writeIdentity(ctx); err != nil {
		return err
	}
	// Reading the record back is not enough: any copy answers, also one that lags.
	if err := p.view.waitForRevision(ctx, revision); err != nil {
		return err
	}
	p.running.Go(func() { p.heartbeats(run) })
	p.running.Go(func() { p.janitor(run) })
	p.running.Go(func() { admission{p}.followAuthority(run) })
	p.running.Go(func() { admission{p}.serveRequests(run) })
	return nil
}

// Announce replaces the node's record, for example when its devices change.
func (p *Pool) Announce(ctx context.Context, self outboard.Node) error {
	p.selfMu.Lock()
	self.ID, self.Fingerprint, self.Boot = p.view.self, p.id.Fingerprint(), p.view.boot
	p.self = self
	p.selfMu.Unlock()
	_, err := p.writeRecord(ctx)
	return err
}

// Self returns this node's record.
func (p *Pool) Self() outboard.Node {
	p.selfMu.Lock()
	defer p.selfMu.Unlock()
	return p.self
}

// Nodes returns the present nodes, by name.
func (p *Pool) Nodes() []outboard.Node { return p.view.nodes() }

// Node returns the record of a present node.
func (p *Pool) Node(id outboard.NodeID) (outboard.Node, bool) { return p.view.node(id) }

// Devices returns the devices of all present nodes with their grants, by id.
func (p *Pool) Devices() []DeviceState { return p.view.devices() }

// Leases returns the valid leases, by device.
func (p *Pool) Leases() []outboard.Lease { return p.view.leases() }

// Changed returns a channel that is closed at the next change of the view: nodes, devices or
// leases.
func (p *Pool) Changed() <-chan struct{} { return p.view.changed() }

// Close leaves the pool: it removes the node's record, which voids its leases, and stops the
// pool's goroutines.
func (p *Pool) Close() error { return p.close() }

func (p *Pool) shutdown() error {
	p.stop()
	p.running.Wait()
	p.metrics.unregister()
	ctx, cancel := context.WithTimeout(context.Background(), p.opts.Heartbeat)
	defer cancel()
	if err := p.leave(ctx); err != nil {
		// Not an error: the record expires by itself.
		p.log.Warn("the node's record was not removed from the pool, and expires by itself", "error", err)
	}
	return nil
}

// writeRecord writes the node's record, and returns its revision.
func (p *Pool) writeRecord(ctx context.Context) (uint64, error) {
	p.selfMu.Lock()
	defer p.selfMu.Unlock()
	p.self.Copy = p.state.KeepsCopy()
	text, err := json.Marshal(nodeRecord{Node: p.self, Clock: time.Now().UTC()})
	if err != nil {
		return 0, fmt.Errorf("announce node: %w", err)
	}
	return p.state.Put(ctx, nodePrefix+string(p.view.self), text, p.opts.NodeTTL)
}

// leave removes the node's record if it is of this boot. It tries again when the copy of the state
// that answers lags behind the last heartbeat, or an earlier heartbeat is stored late.
func (p *Pool) leave(ctx context.Context) error {
	key := nodePrefix + string(p.view.self)
	for {
		entry, err := p.state.GetLatest(ctx, key)
		if errors.Is(err, state.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		var n outboard.Node
		if err := json.Unmarshal(entry.Value, &n); err != nil || n.Boot != p.view.boot {
			return err
		}
		if _, err = p.state.Delete(ctx, key, entry.Revision); !errors.Is(err, state.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(leavePause):
		}
	}
}

// leavePause is the time between two attempts to remove the node's record.
const leavePause = 20 * time.Millisecond

func (p *Pool) heartbeats(ctx context.Context) {
	tick := time.NewTicker(p.opts.Heartbeat)
	defer tick.Stop()
	var warned map[outboard.NodeID]bool
	for silent := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n, ok := p.view.node(p.view.self); p.clones.observe(n, ok) {
			p.log.Error("this node runs twice", "error", p.clones.Health())
		}
		warned = warnOfClocks(p, warned)
		err := p.heartbeat(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !silent:
			p.log.Warn("the pool's state does not answer", "error", err)
		case err == nil && silent:
			p.log.Info("the pool's state answers again")
		}
		silent = err != nil
	}
}

func (p *Pool) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.NodeTTL)
	defer cancel()
	_, err := p.writeRecord(ctx)
	return err
}
