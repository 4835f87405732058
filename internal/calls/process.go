package calls

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric/framed"
	"github.com/outboard-run/outboard/fabric/policy"
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
		var held policy.Carried
		err := readFile(m.file(), &held)
		p.plane.table.Take(held, time.Now())
		p.control.answer(m, nil, err)
	case msgHeld:
		var held []policy.Held
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

// startLimit is how long a process may take until it could carry calls.
const startLimit = 30 * time.Second

func (p *process) goes(f func()) { p.running.Go(f) }

func (p *process) start(m *message) (*Ready, error) {
	if m.Config == nil || m.Config.Handover != Handover {
		return nil, outboard.Errorf(outboard.Protocol, "take over calls",
			"the node hands over by version %d, %s by version %d: start the node anew to change to it", handoverOf(m.Config), p.opts.Version, Handover)
	}
	p.config = *m.Config
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
	if p.identity, err = authority.Load(p.config.Identity); err != nil {
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
		Offers: &offers{p.control}, Process: p.config.Process, Link: p.link, Elsewhere: p.elsewhere,
		TLS:    func(to outboard.Node) *tls.Config { return p.identity.ClientTLS(to.ID, to.Fingerprint, Protocol) },
		Framed: p.framed(nil), Logger: p.log, Metrics: p.metrics, Slow: p.config.Slow,
	}
	if p.spans != nil {
		o.Tracer = p.spans
	}
	return o
}

// framed are for connections to other nodes.
func (p *process) framed(config *tls.Config) framed.Options {
	return framed.Options{
		TLS: config, DeadAfter: p.config.DeadAfter, Logger: p.log,
		Metrics: p.labelled(),
	}
}

// labelled is for metrics that the node has of itself as well.
func (p *process) labelled() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"process": "calls"}, p.metrics)
}

func (p *process) openState(ctx context.Context) (*state.State, error) {
	if p.config.NATS != "" {
		return state.Connect(ctx, state.ConnectOptions{URL: p.config.NATS, Creds: p.config.Creds, Logger: p.log})
	}
	return state.Attach(ctx, state.AttachOptions{
		Dial:   func() (net.Conn, error) { return p.control.connect(msgState) },
		Logger: p.log,
	})
}

// link is a connection to another process of the node.
func (p *process) link(ctx context.Context, process int) (net.Conn, error) {
	a, err := p.control.ask(ctx, &message{Type: msgLink, Process: process})
	if err != nil {
		return nil, err
	}
	return connOf(a.file())
}

// elsewhere asks the node which endpoint has a stream.
func (p *process) elsewhere(ctx context.Context, stream string) string {
	a, err := p.control.ask(ctx, &message{Type: msgWhere, ID: stream})
	if err != nil {
		return ""
	}
	return a.ID
}

func (p *process) serve(m *message) error {
	defer m.close()
	switch len(m.files) {
	case 1:
		return p.plane.Accept(m.files[0], nil)
	case 2:
		return p.plane.Accept(m.files[0], m.files[1])
	}
	return outboard.Errorf(outboard.Protocol, m.Type, "%d files", len(m.files))
}

// retire ends the process after its last call.
func (p *process) retire() {
	told := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { p.tellHeld(told) })
	err := p.plane.Retire(p.life)
	close(told)
	telling.Wait()
	if err != nil {
		return
	}
	if err := p.settle(); err != nil {
		p.log.Warn("what was counted is lost", "error", err)
	}
	close(p.retired)
}

// settle hands the node what was counted, so that it is there still when this process
// is not.
func (p *process) settle() error {
	l := ledger{Calls: p.plane.Table(), Policies: p.plane.Policies()}
	var text bytes.Buffer
	families, err := p.metrics.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return err
		}
	}
	l.Metrics = text.Bytes()
	f, err := fileOf("ledger", &l)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(p.life, settleLimit)
	defer cancel()
	_, err = p.control.ask(ctx, &message{Type: msgLeft, files: []*os.File{f}})
	return err
}

// settleLimit is how long the node may take to note what was counted.
const settleLimit = 5 * time.Second

// hold is a file with what the policies hold, none where it can't be made.
func (p *process) hold() []*os.File {
	f, err := fileOf("policies", p.plane.table.Carry(time.Now()))
	if err != nil {
		p.log.Warn("the policies begin anew in the process that takes over", "error", err)
		return nil
	}
	return []*os.File{f}
}

// What is told of the calls under way in a process that is being replaced. Most are
// over, or are streams that have moved, when it begins.
const (
	heldFrom  = time.Second
	heldEvery = 50 * time.Millisecond
)

// tellHeld tells the node which calls are under way here that policies count, when
// that has changed.
func (p *process) tellHeld(done <-chan struct{}) {
	wait := time.NewTimer(heldFrom)
	defer wait.Stop()
	var before []policy.Held
	for {
		select {
		case <-done:
			return
		case <-wait.C:
			wait.Reset(heldEvery)
		}
		now := p.plane.table.Held()
		slices.SortFunc(now, func(a, b policy.Held) int {
			return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Key, b.Key))
		})
		if slices.Equal(now, before) {
			continue
		}
		before = now
		f, err := fileOf("held", now)
		if err != nil {
			continue
		}
		// Its error is that the node is gone, and with it this process.
		_ = p.control.tell(&message{Type: msgHeld, files: []*os.File{f}})
		_ = f.Close()
	}
}

// servePeer serves another node that has connected to this one.
func (p *process) servePeer(m *message) {
	arrived := sync.OnceFunc(p.plane.arrived)
	defer arrived()
	nc, err := connOf(m.file())
	if err != nil {
		p.log.Warn("a connection was not passed", "error", err)
		return
	}
	defer nc.Close()
	conn := framed.Server(&replay{nc, io.MultiReader(bytes.NewReader(m.Data), nc)}, p.framed(p.identity.ServerTLS(Protocol)))
	peer, err := p.greet(conn)
	if err != nil {
		_ = conn.Close()
		p.log.Warn("peer refused", "peer", nc.RemoteAddr().String(), "error", err)
		return
	}
	_ = p.plane.servePeer(p.life, conn, peer.Node, arrived)
}

// greetLimit is how long a node may take to show who it is.
const greetLimit = 10 * time.Second

func (p *process) greet(conn *framed.Conn) (authority.Peer, error) {
	limit, cancel := context.WithTimeout(p.life, greetLimit)
	defer cancel()
	if err := conn.Handshake(limit); err != nil {
		return authority.Peer{}, err
	}
	peer, err := authority.VerifyPeer(p.identity.Root, conn.Peer(), time.Now())
	if err == nil && peer.Session {
		// Nodes are believed when they say for whom they call; a program is not.
		err = outboard.Errorf(outboard.Denied, "calls", "a session of node %s is no node", peer.Node)
	}
	return peer, err
}

// replay reads what was seen once more before anything new.
type replay struct {
	net.Conn
	io.Reader
}

func (r *replay) Read(b []byte) (int, error) { return r.Reader.Read(b) }

func (p *process) serveNear(m *message) {
	nc, err := connOf(m.file())
	if err != nil {
		p.log.Warn("a link was not passed", "error", err)
		return
	}
	_ = p.plane.ServeProcess(p.life, nc)
}

// ---- the tables

func (p *process) handler(plane *Plane) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) { say(w, plane.Table()) })
	mux.HandleFunc("GET /policies", func(w http.ResponseWriter, _ *http.Request) { say(w, plane.Policies()) })
	mux.HandleFunc("POST /parse", func(w http.ResponseWriter, r *http.Request) {
		var f client.PolicyFile
		err := json.NewDecoder(r.Body).Decode(&f)
		if err == nil {
			_, err = plane.Parse(f.Name, []byte(f.Text))
		}
		answer := parsed{}
		if err != nil {
			answer.Error = err.Error()
		}
		say(w, answer)
	})
	return mux
}

// parsed is what a text of policies comes to.
type parsed struct {
	Error string `json:"error,omitempty"`
}

func say(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the node hung up
}

// serveHTTP serves the one request of a connection.
func (p *process) serveHTTP(m *message) {
	nc, err := connOf(m.file())
	if err != nil {
		p.log.Warn("a request was not passed", "error", err)
		return
	}
	l := &oneConn{conn: nc, done: make(chan struct{})}
	s := &http.Server{
		Handler: p.tables, ReadHeaderTimeout: greetLimit,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				l.end()
			}
		},
	}
	s.SetKeepAlivesEnabled(false)
	defer context.AfterFunc(p.life, func() { _ = s.Close(); l.end() })()
	_ = s.Serve(l) // it ends with the connection
}

// oneConn is a listener that accepts one connection, and then waits for its end.
type oneConn struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	if nc := l.conn; nc != nil {
		l.conn = nil
		return nc, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) end() { l.once.Do(func() { close(l.done) }) }

// Close implements net.Listener.
func (l *oneConn) Close() error {
	l.end()
	return nil
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// ---- offers

// offers asks the node.
type offers struct{ control *control }

// Offer implements Offers.
func (o *offers) Offer(ctx context.Context, e services.Endpoint, previous string) (services.Endpoint, error) {
	a, err := o.control.ask(ctx, &message{Type: msgOffer, Endpoint: &e, Previous: previous})
	if err != nil {
		return e, err
	}
	if a.Endpoint == nil {
		return e, outboard.Errorf(outboard.Protocol, "offer", "the node gave no ID")
	}
	return *a.Endpoint, nil
}

// Settled implements Offers.
func (o *offers) Settled(id string) {
	// Its error is that the node is gone, and with it this process.
	_ = o.control.tell(&message{Type: msgSettled, ID: id})
}

// Withdraw implements Offers.
func (o *offers) Withdraw(ctx context.Context, id string) error {
	_, err := o.control.ask(ctx, &message{Type: msgWithdraw, ID: id})
	if err != nil && o.control.over() {
		return nil // the node knows that all of this process's are gone
	}
	return err
}
