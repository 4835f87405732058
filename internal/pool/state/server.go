package state

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/outboard-run/outboard"
)

const (
	startTimeout = 20 * time.Second
	dialTimeout  = 3 * time.Second
)

// errMoving refuses connections while the table moves into the cluster.
var errMoving = fmt.Errorf("the pool's state is moving, try again: %w", ErrElsewhere)

// embedded is this node's access to the table: a NATS server in this process, or, on a guest,
// connections to nodes that have one.
type embedded struct {
	opts    Options
	role    *role
	log     *slog.Logger
	clients *clients
	members *members
	tls     *tls.Config

	mu      sync.Mutex
	srv     *natsserver.Server // nil on a guest
	report  *reporter          // a voter's
	guests  map[net.Conn]string
	serving sync.WaitGroup
	moving  bool

	// unwritable is set when the server could not write. It refuses all further writes then,
	// of one stream or of all, until it is started again.
	unwritable atomic.Bool
	// isolated is set while a voter has had no route to another one for a while.
	isolated atomic.Bool
	// growthFailure is why the last step towards three copies failed, nil after one that did not.
	growthFailure atomic.Pointer[error]
	// undialled is why the last attempt to connect to a peer failed.
	undialled atomic.Pointer[error]
}

func openEmbedded(ctx context.Context, opts Options) (*embedded, error) {
	r, err := loadRole(opts.Dir, opts.Peers)
	if err != nil {
		return nil, err
	}
	e := &embedded{opts: opts, role: r, log: opts.Logger, clients: newClients(), members: newMembers(), guests: make(map[net.Conn]string)}
	e.tls = opts.TLS(func(name outboard.NodeID) bool { return e.members.isFenced(string(name)) })
	if err := e.chooseRouteAddr(); err != nil {
		return nil, err
	}
	// A server that was replaced by another one would ask for votes.
	if d := r.get(); d.Mode == voter && d.Ready && e.wasReplaced(ctx) {
		if err := e.demote(); err != nil {
			return nil, err
		}
	}
	err = e.start()
	return e, err
}

// chooseRouteAddr chooses the address for routes before this node listens, so that it can be
// announced. An ephemeral port is chosen once; another address replaces that of the last start.
func (e *embedded) chooseRouteAddr() error {
	last := e.role.get().Route
	host, port, err := net.SplitHostPort(e.opts.Listen)
	if err == nil && port == "0" {
		if last != "" {
			return nil
		}
		host, port, err = freeAddr(e.opts.Listen)
	}
	if err != nil {
		return outboard.Errorf(outboard.Invalid, "open state", "address for routes %q: %w", e.opts.Listen, err)
	}
	route := net.JoinHostPort(host, port)
	if route == last {
		return nil
	}
	return e.role.change(func(d *roleData) { d.Route = route })
}

// freeAddr splits an address with port 0, and replaces the port by a free one.
func freeAddr(addr string) (host, port string, err error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return "", "", err
	}
	if host, port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		return "", "", errors.Join(err, l.Close())
	}
	return host, port, l.Close()
}

// start runs the server that the node's role requires.
func (e *embedded) start() error {
	d := e.role.get()
	if d.Mode == guest {
		return nil
	}
	opts, err := e.serverOptions(d)
	if err != nil {
		return err
	}
	if err := probeListen(opts.Cluster); err != nil {
		return err
	}
	srv, err := runServer(opts, e.log, func() { e.unwritable.Store(true) })
	if err != nil {
		return err
	}
	var report *reporter
	if d.Mode == voter {
		if report, err = startReporter(srv, e.clients); err != nil {
			srv.Shutdown()
			return err
		}
	}
	e.mu.Lock()
	e.srv, e.report = srv, report
	e.mu.Unlock()
	return nil
}

func (e *embedded) serverOptions(d roleData) (*natsserver.Options, error) {
	opts := &natsserver.Options{
		ServerName:   e.opts.Name,
		DontListen:   true,
		NoSigs:       true,
		JetStream:    true,
		StoreDir:     e.opts.Dir,
		SyncInterval: time.Second,

		CustomClientAuthentication: e.clients,
	}
	if d.Mode == alone {
		return opts, nil
	}
	host, portText, err := net.SplitHostPort(d.Route)
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "start the embedded server", "route %q: %w", d.Route, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "start the embedded server", "route %q: %w", d.Route, err)
	}
	opts.Cluster = natsserver.ClusterOpts{
		Name: e.opts.Pool, Host: host, Port: port, TLSConfig: e.tls, TLSTimeout: 5,
		Advertise: e.opts.Advertise,
		PoolSize:  -1, // One connection a route: control traffic only.
	}
	// ReloadOptions sorts the routes of the last options in place, while other goroutines of the
	// server read them: in sorted ones it exchanges nothing.
	for _, addr := range slices.Compact(slices.Sorted(slices.Values(e.knownRoutes(d)))) {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: addr})
	}
	return opts, nil
}

// probeListen returns an error if a server could not listen for routes. The server itself would wait
// for startTimeout, and run without routes meanwhile.
func probeListen(cluster natsserver.ClusterOpts) error {
	if cluster.Port == 0 {
		return nil // The node keeps the only copy.
	}
	addr := net.JoinHostPort(cluster.Host, strconv.Itoa(cluster.Port))
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return outboard.Errorf(outboard.Conflict, "start the embedded server", "%w: name another address with --routes", err)
	}
	return l.Close()
}

// knownRoutes returns the addresses at which servers of voters may listen. Those of the operator stay
// for the process's life: a server that was reached at one of them may not have recorded its address
// when the remembered routes change, which would end its connection. A new cluster wants as many votes
// for its first leader as its servers know addresses: it gets those of its members alone.
func (e *embedded) knownRoutes(d roleData) []string {
	if !d.Ready {
		return d.Routes
	}
	return slices.Concat(d.Routes, e.opts.RoutePeers)
}

// runServer starts a server and waits until it serves. The server calls failed when it
// cannot write.
func runServer(opts *natsserver.Options, log *slog.Logger, failed func()) (*natsserver.Server, error) {
	srv, err := natsserver.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("start the embedded server: %w", err)
	}
	output := &serverLog{log: log.With("server", opts.ServerName), failed: failed}
	srv.SetLoggerV2(output, false, false, false)
	srv.Start()
	if fatal := output.fatal.Load(); fatal != nil {
		srv.Shutdown()
		return nil, outboard.Errorf(outboard.Other, "start the embedded server", "%s", *fatal)
	}
	if opts.Cluster.Port != 0 {
		// Routing waits for the client port, which does not exist: report that it is ready. Start
		// has a goroutine that waits for the port as well; the server's shutdown counts only one of
		// the two, so it does not hang, and the other stays until the process ends.
		ready := make(chan struct{})
		close(ready)
		go srv.StartRouting(ready)
	}
	if !srv.ReadyForConnections(startTimeout) {
		srv.Shutdown()
		return nil, outboard.Errorf(outboard.Unreachable, "start the embedded server",
			"another process listens at %s, or this machine does not have the address: name another one with --routes",
			net.JoinHostPort(opts.Cluster.Host, strconv.Itoa(opts.Cluster.Port)))
	}
	return srv, nil
}

// InProcessConn opens the connection of the node's NATS client: to its own server if that has the
// table, otherwise to a peer that has. It implements nats.InProcessConnProvider.
func (e *embedded) InProcessConn() (net.Conn, error) {
	e.mu.Lock()
	srv, moving := e.srv, e.moving
	e.mu.Unlock()
	d := e.role.get()
	switch {
	case moving:
		return nil, errMoving
	case srv != nil && d.Ready:
		return srv.InProcessConn()
	}
	conn, err := e.dialPeer(context.Background(), d.Peers)
	e.undialled.Store(&err)
	return conn, err
}

// dialPeer connects to the first peer that serves the table.
func (e *embedded) dialPeer(ctx context.Context, peers []string) (net.Conn, error) {
	if e.opts.Dial == nil || len(peers) == 0 {
		return nil, errors.New("no other node is known")
	}
	var errs []error
	for _, addr := range peers {
		limit, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := e.opts.Dial(limit, addr)
		if err == nil {
			if err = awaitGreeting(limit, conn); err == nil {
				cancel()
				return conn, nil
			}
			errs = append(errs, conn.Close())
		}
		cancel()
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// awaitGreeting reads the peer's first byte, which says whether it serves the table.
func awaitGreeting(ctx context.Context, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	var answer [1]byte
	if _, err := conn.Read(answer[:]); err != nil {
		return err
	}
	if answer[0] != serves {
		return errors.New("the node does not keep the pool's state")
	}
	return conn.SetDeadline(time.Time{})
}

// stop ends the server and all guests' connections.
func (e *embedded) stop() {
	e.mu.Lock()
	srv, report := e.srv, e.report
	e.srv, e.report = nil, nil
	for conn := range e.guests {
		_ = conn.Close()
	}
	e.mu.Unlock()
	e.serving.Wait()
	if srv != nil && report != nil {
		e.transferLeadership(srv, report.sys)
	}
	report.close()
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

func (e *embedded) current() *natsserver.Server {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.srv
}

// setMoving refuses all clients, or admits them again.
func (e *embedded) setMoving(moving bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.moving = moving
}

// routeAddr returns the address at which other voters reach this node.
func (e *embedded) routeAddr() string {
	if e.opts.Advertise != "" {
		return e.opts.Advertise
	}
	return e.role.get().Route
}

// serverLog forwards the server's log at debug level, and records the error that stops the
// server.
type serverLog struct {
	log    *slog.Logger
	failed func()
	fatal  atomic.Pointer[string]
}

func (l *serverLog) Noticef(f string, v ...any) { l.say("notice", f, v) }
func (l *serverLog) Warnf(f string, v ...any)   { l.say("warning", f, v) }
func (l *serverLog) Errorf(f string, v ...any) {
	if isStorageError(f) {
		l.failed()
	}
	l.say("error", f, v)
}

func (l *serverLog) Debugf(string, ...any) {}
func (l *serverLog) Tracef(string, ...any) {}

func (l *serverLog) Fatalf(f string, v ...any) {
	text := fmt.Sprintf(f, v...)
	l.fatal.CompareAndSwap(nil, &text)
}

func (l *serverLog) say(as, f string, v []any) {
	l.log.Debug("nats server", "as", as, "said", fmt.Sprintf(f, v...))
}
