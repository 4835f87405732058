package calls

import (
	"cmp"
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
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/traces"
)

// Handover is the version of the messages between a node and a process that carries its calls. Both
// must have the same; a node sends its own first.
const Handover = 3 // 1: before programs had credentials; 2: before nodes lent the state of an existing cluster

// Config is how a node configures the process that carries its calls.
type Config struct {
	Handover int             `json:"handover"`
	Self     outboard.NodeID `json:"self"`
	Boot     string          `json:"boot"`
	// Identity is the folder with the node's keys.
	Identity string `json:"identity"`
	// Process is the process's number.
	Process int `json:"process"`
	// StateName is the node's name in the pool's state, to which the node lends a connection;
	// empty: Self.
	StateName string `json:"state_name,omitempty"`
	// The other fields are copied from the options of a node.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	DeadAfter time.Duration `json:"dead_after,omitempty"`
	Slow      time.Duration `json:"slow,omitempty"`
	MaxCalls  int           `json:"max_calls,omitempty"`
	// ClientTimeout is how long a client of plain gRPC may make the process wait.
	ClientTimeout time.Duration `json:"client_timeout,omitempty"`
	Level         slog.Level    `json:"level"`
}

// stateName returns the node's name in the pool's state.
func (c *Config) stateName() string { return cmp.Or(c.StateName, string(c.Self)) }

// Ready describes a process that has started.
type Ready struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// ProcessOptions are the options that a process has without its node.
type ProcessOptions struct {
	Version string
	Logger  *slog.Logger
	// Level, if not nil, is set to the log level of the node.
	Level *slog.LevelVar
}

// A process carries the calls of a node in a separate operating system process.
type process struct {
	opts    ProcessOptions
	log     *slog.Logger
	node    *ipc.Conn
	life    context.Context //nolint:containedctx // of the goroutines that requests start
	running sync.WaitGroup
	retired chan struct{} // closed when the last call is over
	unknown acceptor.Unauthenticated
	known   *acceptor.Slots // of the connections whose peers have authenticated, by their nodes

	// The following fields are set by the request to start.
	config   Config
	identity *authority.Identity
	state    *state.State
	members  *pool.Members
	registry *services.Registry
	metrics  *prometheus.Registry
	spans    *traces.Provider // nil: spans are not exported
	plane    *Plane
	tables   http.Handler
}

// Run is a process that carries a node's calls: it serves the node's requests on the socket, and
// ends with the node, or after its last call once another process has taken over.
func Run(ctx context.Context, socket *os.File, opts ProcessOptions) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	node, err := ipc.FromFile(socket, ipc.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &process{opts: opts, log: opts.Logger, node: node, life: ctx, retired: make(chan struct{}), metrics: prometheus.NewRegistry(), known: acceptor.NewSlots(maxInbound)}
	p.labelled().MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var serving sync.WaitGroup
	serving.Go(func() { node.Serve(p.handle) })
	select {
	case <-ctx.Done():
	case <-node.Done():
	case <-p.retired:
	}
	_ = node.Close()
	serving.Wait()
	return p.close(cancel)
}

// close releases the node's sockets first: the node listens on them again when it restarts.
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

// handle serves a request of the node. It does not block, except for start, before which the node
// sends no other request.
func (p *process) handle(m *ipc.Message) {
	var b body
	err := m.Decode(&b)
	if err == nil && m.Type != msgStart && p.plane == nil {
		err = outboard.Errorf(outboard.Protocol, m.Type, "the process has not started")
	}
	if err != nil {
		m.Close()
		p.reply(m, nil, err)
		return
	}
	switch m.Type {
	case msgStart:
		ready, err := p.start(b.Config)
		p.reply(m, &body{Ready: ready}, err)
	case msgServe:
		p.reply(m, nil, p.serve(m))
	case msgPause:
		p.pause(m)
	case msgRestore:
		p.reply(m, nil, p.restorePolicies(detachFile(m)))
	case msgInFlight:
		p.countHeld(detachFile(m))
	case msgDrain:
		inFlight := p.plane.InFlight()
		p.running.Go(p.retire)
		p.reply(m, &body{InFlight: &inFlight}, nil)
	case msgPing:
		p.reply(m, nil, nil)
	case msgMoved:
		p.plane.Moved(b.ID)
	case msgLocate:
		p.reply(m, &body{ID: p.plane.router.Endpoint(b.ID)}, nil)
	default:
		p.handleConn(m, b)
	}
}

// handleConn serves a message that passes a connection.
func (p *process) handleConn(m *ipc.Message, b body) {
	switch m.Type {
	case msgPeer:
		if !p.plane.inbound.reserve() {
			m.Close()
			return
		}
		p.running.Go(func() { p.servePeer(detachFile(m), b.Data) })
	case msgSibling:
		registered := p.plane.inbound.reserveLink()
		p.running.Go(func() { p.serveSibling(detachFile(m), registered) })
	case msgHTTP:
		p.running.Go(func() { p.serveHTTP(detachFile(m)) })
	default:
		m.Close()
		p.reply(m, nil, outboard.Errorf(outboard.Protocol, m.Type, "this process does not know this request"))
	}
}

// reply replies to the node. An error means that the node is gone, which Serve notices.
func (p *process) reply(to *ipc.Message, b *body, err error, files ...*os.File) {
	if b == nil {
		b = &body{}
	}
	_ = p.node.Reply(to, b, err, files...)
}
