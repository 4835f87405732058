package calls

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/traces"
)

// Handover is the version of what a node and a process that carries its calls say
// to each other. They must agree: a node tells it first.
const Handover = 1

// Config is what a node tells the process that carries its calls.
type Config struct {
	Handover int             `json:"handover"`
	Self     outboard.NodeID `json:"self"`
	Boot     string          `json:"boot"`
	// Identity is the folder that has the node's keys.
	Identity string `json:"identity"`
	// Process is the process's number.
	Process int `json:"process"`
	// NATS and Creds name an existing NATS cluster that has the pool's state.
	NATS  string `json:"nats,omitempty"`
	Creds string `json:"creds,omitempty"`
	// The rest is as in the options of a node.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	DeadAfter time.Duration `json:"dead_after,omitempty"`
	Slow      time.Duration `json:"slow,omitempty"`
	Level     slog.Level    `json:"level"`
}

// Ready is what the process says of itself.
type Ready struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// ProcessOptions are what a process knows without its node.
type ProcessOptions struct {
	Version string
	Logger  *slog.Logger
	// Level, where it is not nil, is set to what the node logs.
	Level *slog.LevelVar
}

// process carries the calls of a node in a process of their own.
type process struct {
	opts    ProcessOptions
	log     *slog.Logger
	control *control
	life    context.Context //nolint:containedctx // of what requests start
	running sync.WaitGroup
	retired chan struct{} // closed when the last call is over

	// Set by the request to start.
	config   Config
	identity *authority.Identity
	state    *state.State
	members  *pool.Members
	registry *services.Registry
	metrics  *prometheus.Registry
	spans    *traces.Provider // nil: nobody wants any
	plane    *Plane
	tables   http.Handler
}

// Run is a process that carries a node's calls: it does what the node says on the
// socket, and ends with it, or after its last call when another has taken over.
func Run(ctx context.Context, socket *os.File, opts ProcessOptions) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newControl(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &process{opts: opts, log: opts.Logger, control: c, life: ctx, retired: make(chan struct{}), metrics: prometheus.NewRegistry()}
	p.labelled().MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c.handle = p.take
	var reading sync.WaitGroup
	reading.Go(c.run)
	select {
	case <-ctx.Done():
	case <-c.done:
	case <-p.retired:
	}
	_ = c.conn.Close()
	reading.Wait()
	return p.close(cancel)
}

// close lets go of the node's sockets first: a node that is started anew wants them.
func (p *process) close(cancel context.CancelFunc) error {
	var err error
	if p.plane != nil {
		err = p.plane.Pause()
	}
	cancel()
	if p.plane != nil {
		err = errors.Join(err, p.plane.Close())
	}
	p.running.Wait()
	err = errors.Join(err, p.spans.Close())
	if p.registry != nil {
		err = errors.Join(err, p.registry.Close())
	}
	if p.members != nil {
		err = errors.Join(err, p.members.Close())
	}
	if p.state != nil {
		err = errors.Join(err, p.state.Close())
	}
	return err
}

// take treats a request of the node. Before the first, start, there is no other.
func (p *process) take(m *message) {
	if m.Type != msgStart && p.plane == nil {
		m.close()
		p.control.answer(m, nil, outboard.Errorf(outboard.Protocol, m.Type, "the process has not started"))
		return
	}
	switch m.Type {
	case msgStart:
		// Nothing else is asked before this is answered, except what it needs itself.
		ready, err := p.start(m)
		p.control.answer(m, &message{Ready: ready}, err)
	case msgServe:
		p.control.answer(m, nil, p.serve(m))
	case msgPause:
		p.control.answer(m, &message{files: p.hold()}, p.plane.Pause())
	case msgTake:
		var held policy.SetState
		err := readFile(m.file(), &held)
		p.plane.table.ImportState(held, time.Now())
		p.control.answer(m, nil, err)
	case msgHeld:
		var held []policy.InFlight
		// Its error leaves no calls elsewhere.
		_ = readFile(m.file(), &held)
		p.plane.table.HeldElsewhere(held, time.Now())
	case msgDrain:
		flying := p.plane.Flying()
		p.running.Go(p.retire)
		p.control.answer(m, &message{Flying: &flying}, nil)
	case msgMoved:
		p.plane.Moved(m.ID)
	case msgWhere:
		p.control.answer(m, &message{ID: p.plane.router.Endpoint(m.ID)}, nil)
	case msgPeer:
		if !p.plane.expect() {
			m.close()
			return
		}
		p.goes(func() { p.servePeer(m) })
	case msgNear:
		p.goes(func() { p.serveNear(m) })
	case msgHTTP:
		p.goes(func() { p.serveHTTP(m) })
	default:
		m.close()
		p.control.answer(m, nil, outboard.Errorf(outboard.Protocol, m.Type, "this process does not know how"))
	}
}

func (p *process) goes(f func()) { p.running.Go(f) }
