package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

// server serves connections that were accepted elsewhere.
type server struct {
	http      http.Server
	patience  time.Duration
	incoming  chan net.Conn
	closed    chan struct{}
	once      sync.Once
	exchanges exchangePool
}

// The bounds of a connection between requests.
const (
	idleTimeout = 2 * time.Minute
	maxHead     = 64 << 10
)

func newServer(g *Gateway) *server {
	s := &server{incoming: make(chan net.Conn), closed: make(chan struct{}), patience: g.opts.Patience}
	s.http = http.Server{
		Handler: g, ReadHeaderTimeout: g.opts.Patience, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn), DisableGeneralOptionsHandler: true,
	}
	return s
}

// ServeConn serves a connection from which first was read already, and returns
// before that ends. A connection that comes when the gateway does not run is closed.
func (g *Gateway) ServeConn(conn net.Conn, first []byte) {
	c := &handedConn{Conn: conn, first: first, patience: g.server.patience}
	select {
	case g.server.incoming <- c:
	case <-g.server.closed:
		_ = conn.Close() // nobody is left who could answer
	}
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

// run serves until ctx ends, and then lets finish what was accepted.
func (s *server) run(ctx context.Context, grace time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- s.http.Serve(s) }()
	select {
	case err := <-done:
		return &outboard.Error{Op: "serve connections", Err: err}
	case <-ctx.Done():
	}
	err := s.stop(context.WithoutCancel(ctx), grace)
	<-done
	return err
}

func (s *server) stop(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		_ = s.http.Close() // what is left had its time
		return outboard.Errorf(outboard.Other, "stop serving", "requests took longer than %v: %w", grace, err)
	}
	return nil
}

// A handedConn gives what was read of a connection before, and bounds how long a
// write may take.
type handedConn struct {
	net.Conn
	first    []byte
	patience time.Duration

	mu    sync.Mutex
	armed time.Time // when the deadline for writes was set
}

// Read implements net.Conn.
func (c *handedConn) Read(b []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	if c.first = c.first[n:]; len(c.first) == 0 {
		c.first = nil
	}
	return n, nil
}

// Write implements net.Conn.
func (c *handedConn) Write(b []byte) (int, error) {
	if err := c.arm(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// arm sets the deadline of writes anew when half of it is over: setting it each time
// costs more than the rest of a small answer.
func (c *handedConn) arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.armed) < c.patience {
		return nil
	}
	c.armed = now
	return c.Conn.SetWriteDeadline(now.Add(2 * c.patience))
}

// SetDeadline and SetWriteDeadline implement net.Conn. Whoever sets a deadline for
// writes has it until the next write.
func (c *handedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (c *handedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = time.Time{}
	return c.Conn.SetWriteDeadline(t)
}

// CloseWrite lets net/http end a connection whose client still sends.
func (c *handedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return io.ErrClosedPipe
}
