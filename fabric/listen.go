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

	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// A Listener is an address at which a [Server] receives calls. [Listen] creates it, [Server.Run]
// serves it.
type Listener interface {
	// Addr returns the address that is listened on.
	Addr() net.Addr
	// Close releases a listener that was not given to Run.
	Close() error

	// serve passes calls to s until ctx ends. Then it closes the listener, ends the calls,
	// waits for the goroutines that it started, and returns nil. It is called once.
	serve(ctx context.Context, s *Server) error
}

// Listen listens at target, which has the forms of [Dial]. The port of a target over TCP
// may be 0. Clients that dial wait until the listener is served.
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
		return o.network.listen(rest)
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

// tcpListener is a TCP listener with the protocol that it serves.
type tcpListener struct {
	net.Listener
	options *options
	run     func(ctx context.Context, l net.Listener, s *Server, o *options) error
}

func listenTCP(addr string, o *options, run func(context.Context, net.Listener, *Server, *options) error) (Listener, error) {
	l, err := net.Listen("tcp", addr) //nolint:noctx // it does not wait
	if err != nil {
		return nil, err
	}
	return &tcpListener{Listener: l, options: o, run: run}, nil
}

func (l *tcpListener) serve(ctx context.Context, s *Server) error {
	return l.run(ctx, l.Listener, s, l.options)
}

func serveRemote(ctx context.Context, l net.Listener, s *Server, o *options) error {
	return remote.Serve(ctx, l, o.tls, remote.Options{Handler: serverHandler{s}, Logger: o.logger, Framed: framed.Options{MaxStreams: o.maxCalls}, MaxMessage: o.transportLimit()})
}

// servePlain serves plain gRPC peers, with reflection.
func servePlain(ctx context.Context, l net.Listener, s *Server, o *options) error {
	front := plain.NewServer(serverHandler{s}, plain.Options{
		Logger: o.logger, TLS: o.tls, MaxMessage: o.transportLimit(), Descriptors: described{s, protoregistry.GlobalFiles},
	})
	var stopped sync.WaitGroup
	stopped.Add(1)
	unhook := context.AfterFunc(ctx, func() { defer stopped.Done(); front.Stop() })
	err := front.Serve(l)
	if unhook() {
		front.Stop()
		return err
	}
	stopped.Wait()
	return nil
}

// described lists a server's services and finds their descriptors.
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

// sharedListener listens for programs of this machine, over shared memory.
type sharedListener struct {
	inner   *shared.Listener
	path    string
	handler *serverHandler // its Server is set before the first connection is accepted
}

func listenShared(path string, o *options) (Listener, error) {
	h := new(serverHandler)
	inner, err := shared.Listen(path, shared.Options{Handler: h, Logger: o.logger, MaxCalls: o.maxCalls, MaxMessage: o.transportLimit()})
	if err != nil {
		return nil, err
	}
	return &sharedListener{inner: inner, path: path, handler: h}, nil
}

func (l *sharedListener) serve(ctx context.Context, s *Server) error {
	l.handler.Server = s
	return l.inner.Serve(ctx, func(*shared.Conn) error { return nil })
}

// Addr implements Listener.
func (l *sharedListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close implements Listener.
func (l *sharedListener) Close() error { return l.inner.Close() }

var (
	errNoTLS     = errors.New("a target over TCP needs WithTLS")
	errNoNetwork = errors.New("a target in this process needs WithNetwork")
)
