package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
	"github.com/outboard-run/outboard/internal/gateway"
)

// runPort serves --models until ctx ends, and stops passing the gateway's connections to a tenant's
// process as soon as there is a model.
func (m *models) runPort(ctx context.Context, ready func()) error {
	ready()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		if m.awaitModel(ctx) {
			m.node.tenants.Share(ctx)
		}
	})
	serving.Go(func() { m.runGRPC(ctx) })
	if m.listener == nil {
		<-ctx.Done()
		return nil
	}
	m.log.Info("requests to models are accepted", "addr", m.addr())
	p := &modelPort{
		timeout: m.clientTimeout(), log: m.log,
		http: newConnQueue(m.listener.Addr()), grpc: newConnQueue(m.listener.Addr()),
	}
	return p.run(ctx, m.listener, http.HandlerFunc(m.serveClient), m.newModelGRPC())
}

// A modelPort is the port of --models: clients that begin with the preface of HTTP/2 speak gRPC, all
// others HTTP/1.1.
type modelPort struct {
	timeout    time.Duration // how long a client may make the node wait
	http, grpc *connQueue
	log        *slog.Logger
}

// modelsPercent bounds the connections of the port, in percent of the node's descriptors.
const modelsPercent = 15

// run serves the connections of a listener until ctx ends.
func (p *modelPort) run(ctx context.Context, l net.Listener, handler http.Handler, calls *grpc.Server) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: p.timeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxForwardedHead,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 2)
	go func() { failed <- gateway.Serve(server, p.http) }()
	go func() { failed <- calls.Serve(p.grpc) }()
	clients := &clientListener{Listener: l, clients: newClientConns(acceptor.Share(maxForwardedConns, modelsPercent), p.timeout)}
	acceptor.Serve(ctx, l, clients.Accept, acceptor.Options{Name: "models", Log: p.log}, p.accept)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardGrace)
	defer cancel()
	stop := context.AfterFunc(limit, calls.Stop) // the grace period is over
	defer stop()
	if server.Shutdown(limit) != nil {
		_ = server.Close()
	}
	calls.GracefulStop()
	err := errors.Join(<-failed, <-failed)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// accept passes a connection to the server of its protocol.
func (p *modelPort) accept(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	begin, isHTTP2, err := readPreface(conn, p.timeout)
	if !stop() || err != nil {
		_ = conn.Close()
		return
	}
	queue := p.http
	if isHTTP2 {
		queue = p.grpc
	}
	queue.add(&begunConn{conn, begin})
}

// readPreface reads the first bytes of a client, and reports whether they are the preface of HTTP/2.
func readPreface(conn net.Conn, timeout time.Duration) (begin []byte, isHTTP2 bool, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, false, err
	}
	begin = make([]byte, 0, len(grpcconn.Preface))
	for len(begin) < len(grpcconn.Preface) && string(begin) == grpcconn.Preface[:len(begin)] {
		n, err := conn.Read(begin[len(begin):cap(begin)])
		if err != nil {
			return nil, false, err
		}
		begin = begin[:len(begin)+n]
	}
	return begin, string(begin) == grpcconn.Preface, conn.SetReadDeadline(time.Time{})
}

// A begunConn is a connection whose first bytes have been read.
type begunConn struct {
	net.Conn
	begin []byte
}

// Read implements net.Conn.
func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.begin) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.begin)
	c.begin = c.begin[n:]
	return n, nil
}

// A connQueue is a listener that gets its connections from add.
type connQueue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newConnQueue(addr net.Addr) *connQueue {
	return &connQueue{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// add passes a connection to Accept, or closes it if the listener is closed.
func (q *connQueue) add(conn net.Conn) {
	select {
	case q.conns <- conn:
	case <-q.closed:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr implements net.Listener.
func (q *connQueue) Addr() net.Addr { return q.addr }

// clientTimeout returns how long a client may make the node wait.
func (m *models) clientTimeout() time.Duration {
	return cmp.Or(m.node.opts.ClientTimeout, gateway.DefaultClientTimeout)
}

// serveClient is ServeHTTP for the port of models: it bounds how slow a client may be.
func (m *models) serveClient(w http.ResponseWriter, r *http.Request) {
	m.ServeHTTP(w, gateway.BoundBody(w, r, m.clientTimeout()))
}
