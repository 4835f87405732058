package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// A Listener brings calls to a handler.
type Listener interface {
	// Serve gives h the calls that come, until ctx ends. Then it closes the
	// listener, ends the calls, waits for what it started, and returns nil. It is
	// called once.
	Serve(ctx context.Context, h call.Handler) error
	// Addr is where it listens.
	Addr() net.Addr
	// Close is for listeners that serve nobody.
	Close() error
}

// Listen takes the place that clients dial as target, see [Dial]. The port of a
// target over TCP may be 0. Who dials waits until the listener is served.
func Listen(target string, opts ...Option) (Listener, error) {
	o := newOptions(opts)
	l, err := listen(target, &o)
	if err != nil {
		return nil, fmt.Errorf("fabric: listen on %s: %w", target, err)
	}
	return l, nil
}

func listen(target string, o *options) (Listener, error) {
	scheme, rest, _ := strings.Cut(target, ":")
	switch scheme {
	case "inproc":
		if o.network == nil {
			return nil, errNoNetwork
		}
		return o.network.Listen(rest)
	case "unix":
		return listenShared(rest, o)
	case "node":
		return listenNode(rest, o), nil
	case "grpc":
		return listenTCP(rest, o, servePlain)
	case "tcp":
		target = rest
	}
	if o.tls == nil {
		return nil, errNoTLS
	}
	return listenTCP(target, o, serveRemote)
}

// ServeGRPC is a Listener for plain gRPC peers at l.
func ServeGRPC(l net.Listener, opts ...Option) Listener {
	o := newOptions(opts)
	return &tcpListener{Listener: l, options: &o, serve: servePlain}
}

// tcpListener is a listener of package net with a protocol.
type tcpListener struct {
	net.Listener
	options *options
	serve   func(ctx context.Context, l net.Listener, h call.Handler, o *options) error
}

func listenTCP(addr string, o *options, serve func(context.Context, net.Listener, call.Handler, *options) error) (Listener, error) {
	l, err := net.Listen("tcp", addr) //nolint:noctx // it does not wait
	if err != nil {
		return nil, err
	}
	return &tcpListener{Listener: l, options: o, serve: serve}, nil
}

// Serve implements Listener.
func (l *tcpListener) Serve(ctx context.Context, h call.Handler) error {
	return l.serve(ctx, l.Listener, h, l.options)
}

func serveRemote(ctx context.Context, l net.Listener, h call.Handler, o *options) error {
	return remote.Serve(ctx, l, o.tls, remote.Options{Handler: h, Logger: o.logger, MaxMessage: o.largest()})
}

// servePlain serves plain gRPC peers. Where h is one of our servers there is
// reflection.
func servePlain(ctx context.Context, l net.Listener, h call.Handler, o *options) error {
	about := plain.Options{Logger: o.logger, TLS: o.tls, MaxMessage: o.largest()}
	if s, ok := h.(*Server); ok {
		about.Descriptors = described{s, protoregistry.GlobalFiles}
	}
	s := plain.NewServer(h, about)
	var stopped sync.WaitGroup
	stopped.Add(1)
	unhook := context.AfterFunc(ctx, func() { defer stopped.Done(); s.Stop() })
	err := s.Serve(l)
	if unhook() {
		s.Stop()
		return err
	}
	stopped.Wait()
	return nil
}

// described is a server's services with their descriptors.
type described struct {
	server *Server
	files  *protoregistry.Files
}

func (d described) Services() []string {
	names := make([]string, 0, len(*d.server.services.Load()))
	for name := range *d.server.services.Load() {
		names = append(names, name)
	}
	return names
}

func (d described) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return d.files.FindFileByPath(path)
}

func (d described) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return d.files.FindDescriptorByName(name)
}

// sharedListener listens for those who share memory with us.
type sharedListener struct {
	inner   *shared.Listener
	path    string
	handler *lateHandler
}

func listenShared(path string, o *options) (Listener, error) {
	h := new(lateHandler)
	inner, err := shared.Listen(path, shared.Options{Handler: h, Logger: o.logger, MaxMessage: o.largest()})
	if err != nil {
		return nil, err
	}
	return &sharedListener{inner: inner, path: path, handler: h}, nil
}

// Serve implements Listener.
func (l *sharedListener) Serve(ctx context.Context, h call.Handler) error {
	l.handler.inner = h
	return l.inner.Serve(ctx, func(*shared.Conn) error { return nil })
}

// Addr implements Listener.
func (l *sharedListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close implements Listener.
func (l *sharedListener) Close() error { return l.inner.Close() }

// lateHandler is a handler that becomes known before the first connection is taken.
type lateHandler struct{ inner call.Handler }

// Serve implements call.Handler.
func (l *lateHandler) Serve(s call.ServerStream) error { return l.inner.Serve(s) }

// ServeUnary implements call.UnaryHandler.
func (l *lateHandler) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	if u, ok := l.inner.(call.UnaryHandler); ok {
		return u.ServeUnary(ctx, h, request)
	}
	return solo(ctx, h, request, l.inner.Serve)
}

var (
	errNoTLS     = errors.New("a target over TCP needs WithTLS")
	errNoNetwork = errors.New("a target in this process needs WithNetwork")
)
