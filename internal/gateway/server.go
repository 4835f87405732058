package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
)

// server serves connections that other processes accepted.
type server struct {
	http          http.Server
	gateway       *Gateway
	clientTimeout time.Duration
	incoming      chan net.Conn // for net/http
	started       chan struct{}
	closed        chan struct{}
	plain         sync.WaitGroup // plain connections, and those that are refused
	refusals      chan struct{}  // the refused connections that are answered
	stopping      atomic.Bool
	once          sync.Once
	exchanges     exchangePool
	watch         connTable
}

// Limits of a connection between requests.
const (
	idleTimeout = 2 * time.Minute
	maxHead     = 64 << 10
	// firstTimeout is how long a new connection may stay without a request.
	firstTimeout = 10 * time.Second
	// maxRefusals bounds the refused connections that are answered at a time.
	maxRefusals = 128
)

func newServer(g *Gateway) *server {
	s := &server{gateway: g, incoming: make(chan net.Conn), started: make(chan struct{}), closed: make(chan struct{}), clientTimeout: g.opts.ClientTimeout, refusals: make(chan struct{}, maxRefusals)}
	s.watch.slots, s.watch.conns, s.watch.callBegan = acceptor.NewSlots(g.opts.Conns), map[*clientConn]struct{}{}, make(chan struct{}, 1)
	s.http = http.Server{
		Handler: http.HandlerFunc(s.serveHTTP), ReadHeaderTimeout: g.opts.ClientTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead,
		ConnState: setIdle, ConnContext: withConn,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn), DisableGeneralOptionsHandler: true,
	}
	return s
}

// ServeConn serves a connection, from which first was read already, and returns before it ends. A
// connection passed before Run runs waits for it, one passed after Run is closed.
func (g *Gateway) ServeConn(conn net.Conn, first []byte) {
	c := &clientConn{Conn: conn, prefix: first, pace: pace{timeout: g.server.clientTimeout}, watch: &g.server.watch}
	if err := g.server.watch.add(c); err != nil {
		g.server.refuse(conn, len(first) > 0, err)
		return
	}
	select {
	case <-g.server.started:
		g.server.servePlain(c)
	case <-g.server.closed:
		_ = c.Close() // the gateway has stopped
	}
}

// refuse answers the first request of a connection with an error, and returns before that: its client
// may take seconds to send and to read. begun says that a part of the request was read. Connections
// beyond maxRefusals are closed without an answer.
func (s *server) refuse(conn net.Conn, begun bool, reason error) {
	select {
	case s.refusals <- struct{}{}:
	default:
		_ = conn.Close() // too many clients are refused
		return
	}
	if !s.countPlain() {
		<-s.refusals
		_ = conn.Close() // the server stops
		return
	}
	go func() {
		defer s.plain.Done()
		defer func() { <-s.refusals }()
		if begun {
			refuseRequest(conn, reason)
		} else {
			Refuse(conn, reason)
		}
	}()
}

// CloseClientConns ends the connections on which clients send requests: idle ones at once, others
// after the response in progress. WebSockets and connections of processes that forward requests
// stay. Connections passed to ServeConn afterwards are served.
func (g *Gateway) CloseClientConns() {
	w := &g.server.watch
	w.mu.Lock()
	all := slices.Collect(maps.Keys(w.conns))
	w.mu.Unlock()
	for _, c := range all {
		if c.forwards() {
			continue
		}
		c.stop()
		c.closeIdle()
	}
}

// forwards reports whether the peer is a process that forwards requests of clients.
func (c *clientConn) forwards() bool { return c.RemoteAddr().Network() == "unix" }

// closeIdle closes a connection that net/http has if no request is in progress.
func (c *clientConn) closeIdle() {
	c.mu.Lock()
	idle := c.idle && c.stopping.Load()
	c.mu.Unlock()
	if idle {
		_ = c.Close() // no request or response is lost with it
	}
}

// setIdle records the state of a connection that net/http has.
func setIdle(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*clientConn)
	if !ok {
		return
	}
	c.mu.Lock()
	c.idle = state == http.StateIdle
	if c.idle {
		c.unreadable.reading.Store(true)
	}
	c.mu.Unlock()
	c.closeIdle()
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// lastRequest ends the connection of a request after its response.
func lastRequest(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*clientConn); ok {
		c.stop()
	}
}

// serveHTTP is the handler of net/http's server.
func (s *server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*clientConn); ok {
		c.unreadable.reading.Store(false)
		if c.lengths.isAmbiguous(r) || c.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
	}
	if r.Body != http.NoBody {
		// net/http reads the rest of a body that the handler has not read, and would wait for it
		// without a limit.
		_ = http.NewResponseController(w).SetReadDeadline(s.watch.clock().Add(s.clientTimeout))
	}
	s.gateway.ServeHTTP(w, r)
}

// Accept implements net.Listener.
func (s *server) Accept() (net.Conn, error) {
	select {
	case c := <-s.incoming:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *server) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr implements net.Listener.
func (s *server) Addr() net.Addr { return &net.UnixAddr{Name: "handed over", Net: "unix"} }

// run serves until ctx ends, and then drains.
func (s *server) run(ctx context.Context, grace time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- s.http.Serve(s) }()
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	var watcher sync.WaitGroup
	watcher.Go(func() { s.watch.run(watched) })
	defer watcher.Wait()
	defer unwatch()
	close(s.started)
	select {
	case err := <-done:
		return errors.Join(&outboard.Error{Op: "serve connections", Err: err}, s.stop(context.WithoutCancel(ctx), grace))
	case <-ctx.Done():
	}
	err := s.stop(context.WithoutCancel(ctx), grace)
	<-done
	return err
}

func (s *server) stop(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	ended := s.stopPlain()
	err := s.http.Shutdown(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	_ = s.http.Close() // the grace period is over
	s.watch.abortAll()
	<-ended
	return outboard.Errorf(outboard.Other, "stop serving", "requests took longer than %v: %w", grace, err)
}
