package calls

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// listeners are the sockets to which programs connect.
type listeners struct {
	mu       sync.Mutex
	programs *shared.Listener   // nil: closed
	plain    *drainableListener // nil: none
	retired  []*shared.Listener // accept no more programs; their handshakes may be in progress
}

func (l *listeners) set(programs *shared.Listener, plain *drainableListener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs, l.plain = programs, plain
}

// drain closes the listeners without resetting connections that were accepted.
func (l *listeners) drain() error {
	l.mu.Lock()
	programs, plain := l.programs, l.plain
	l.programs, l.plain = nil, nil
	l.mu.Unlock()
	var err error
	if programs != nil {
		err = programs.Retire()
		l.mu.Lock()
		l.retired = append(l.retired, programs)
		l.mu.Unlock()
	}
	if plain != nil {
		err = errors.Join(err, plain.drain())
	}
	return err
}

// settled reports whether every program that a drained listener has accepted is connected.
func (l *listeners) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = slices.DeleteFunc(l.retired, (*shared.Listener).Settled)
	return len(l.retired) == 0
}

func (l *listeners) plainAddr() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.plain == nil {
		return ""
	}
	return l.plain.Addr().String()
}

// Accept serves the programs that connect to two listening sockets: for shared memory, and for
// plain gRPC unless plain is nil. The caller still closes both files.
func (p *Plane) Accept(programs, plain *os.File) error {
	l, err := shared.ListenFile(programs, p.sharedOptions())
	if err != nil {
		return err
	}
	if plain == nil {
		p.listen(l, nil)
		return nil
	}
	port, err := net.FileListener(plain)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for plain gRPC: %w", err), l.Close())
	}
	p.listen(l, port)
	return nil
}

func (p *Plane) listen(programs *shared.Listener, port net.Listener) {
	var plain *drainableListener
	p.life.Go(func() { p.programs.serve(p.life.ctx, programs) })
	if port != nil {
		plain = newDrainableListener(port)
		p.life.Go(func() { p.servePlain(plain) })
	}
	p.listeners.set(programs, plain)
}

// Pause stops accepting programs, and keeps the connected ones. Accept resumes.
func (p *Plane) Pause() error { return p.listeners.drain() }

// PlainAddr returns the address on which plain gRPC is served, "" for none.
func (p *Plane) PlainAddr() string { return p.listeners.plainAddr() }

// servePlain serves programs that speak plain gRPC.
func (p *Plane) servePlain(l net.Listener) {
	if err := p.plain.Serve(l); err != nil {
		p.log.Error("plain gRPC is not served any more", "error", err)
	}
}

// A drainableListener can stop accepting without resetting a connection: grpc-go, when stopped,
// closes accepted connections that it has not begun to serve, so drain waits until grpc-go has
// begun with each of them.
type drainableListener struct {
	net.Listener
	closed  chan struct{}
	once    sync.Once
	pending sync.WaitGroup // connections that were accepted and are not served yet

	mu       sync.Mutex
	draining bool
}

func newDrainableListener(l net.Listener) *drainableListener {
	return &drainableListener{Listener: l, closed: make(chan struct{})}
}

// Accept implements net.Listener. On a draining listener it blocks until Close.
func (l *drainableListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err == nil {
		l.pending.Add(1)
		return &acceptedConn{Conn: nc, served: sync.OnceFunc(l.pending.Done)}, nil
	}
	l.mu.Lock()
	draining := l.draining
	l.mu.Unlock()
	if !draining {
		return nil, err
	}
	<-l.closed
	return nil, net.ErrClosed
}

// drain stops accepting, and waits until every accepted connection is served.
func (l *drainableListener) drain() error {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	err := l.Listener.Close()
	l.pending.Wait()
	return err
}

// Close implements net.Listener.
func (l *drainableListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// An acceptedConn is a connection that grpc-go serves from the moment it sets a deadline.
type acceptedConn struct {
	net.Conn
	served func()
}

// SetDeadline implements net.Conn.
func (c *acceptedConn) SetDeadline(t time.Time) error {
	c.served()
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (c *acceptedConn) Close() error {
	c.served()
	return c.Conn.Close()
}
