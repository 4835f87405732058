package shared

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	acceptloop "github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A Listener accepts connections on a unix socket.
type Listener struct {
	socket  *net.UnixListener
	options Options
	retired atomic.Bool
	// pending counts the connections that were accepted and not passed to accept yet, plus one for
	// the loop that accepts.
	pending atomic.Int64
}

func newListener(socket *net.UnixListener, o Options) *Listener {
	l := &Listener{socket: socket, options: o}
	l.pending.Store(1)
	return l
}

// Listen creates a socket at path that only its owner may connect to.
func Listen(path string, o Options) (*Listener, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	socket, err := unixsock.Listen(path)
	if err != nil {
		return nil, err
	}
	return newListener(socket, o), nil
}

// ListenFile returns a Listener on a listening socket that another process created. The caller
// closes f.
func ListenFile(f *os.File, o Options) (*Listener, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", f.Name(), err)
	}
	socket, ok := l.(*net.UnixListener)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("listen on %s: no unix socket", f.Name())
	}
	return newListener(socket, o), nil
}

// File returns a copy of the listening socket for a successor's ListenFile. The caller closes
// it.
func (l *Listener) File() (*os.File, error) { return l.socket.File() }

// KeepSocket keeps the socket's name when the Listener is closed: a successor listens there.
func (l *Listener) KeepSocket() { l.socket.SetUnlinkOnClose(false) }

// Retire stops accepting connections and keeps the connections that Serve has accepted: Serve
// returns when its ctx ends. The socket's name remains for a successor.
func (l *Listener) Retire() error {
	l.retired.Store(true)
	l.KeepSocket()
	return l.socket.Close()
}

// Settled reports whether Serve will pass no other connection to its accept: after Retire, once the
// handshakes of the connections that it has accepted are over.
func (l *Listener) Settled() bool { return l.pending.Load() == 0 }

// Close ends Serve.
func (l *Listener) Close() error { return l.socket.Close() }

// Serve accepts connections until ctx ends, then closes all connections that it has passed to
// accept and returns nil. accept runs in a goroutine of its connection and may refuse the
// connection with an error; calls are served once it has returned nil.
func (l *Listener) Serve(ctx context.Context, accept func(*Conn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loopEnded := sync.OnceFunc(func() { l.pending.Add(-1) })
	defer loopEnded()
	next := func() (*net.UnixConn, error) {
		socket, err := l.socket.AcceptUnix()
		switch {
		case err == nil:
			l.pending.Add(1)
		case errors.Is(err, net.ErrClosed):
			if loopEnded(); !l.retired.Load() {
				cancel() // the connections end with the Listener
			}
		}
		return socket, err
	}
	acceptloop.Serve(ctx, l.socket, next, acceptloop.Options{Name: "programs", Log: l.options.Logger}, func(ctx context.Context, socket *net.UnixConn) {
		l.serveConn(ctx, socket, accept)
	})
	if l.retired.Load() {
		<-ctx.Done()
	}
	return nil
}

// serveConn runs one connection until the connection or ctx ends.
func (l *Listener) serveConn(ctx context.Context, socket *net.UnixConn, accept func(*Conn) error) {
	conn, err := l.handshake(ctx, socket)
	if err == nil {
		err = accept(conn)
	}
	l.pending.Add(-1)
	switch {
	case conn == nil:
		l.options.Logger.Warn("connection refused", "error", err)
		return
	case err != nil:
		l.options.Logger.Info("connection refused", "peer", conn.Peer().String(), "error", err)
		_ = conn.Close()
		return
	}
	conn.start()
	select {
	case <-ctx.Done():
	case <-conn.Done():
	}
	_ = conn.Close()
}

// handshake makes a connection of a socket. After an error the socket is closed.
func (l *Listener) handshake(ctx context.Context, socket *net.UnixConn) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	conn, err := acceptHandshake(socket, &l.options)
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	return conn, nil
}

// Dial connects to a Listener's socket.
func Dial(ctx context.Context, path string, o Options) (*Conn, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	socket, err := unixsock.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Handshake)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	conn, err := dialHandshake(socket, &o)
	if err == nil && !stop() {
		_ = conn.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("dial %s: %w", path, err)
	}
	conn.start()
	return conn, nil
}
