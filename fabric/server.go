package fabric

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

var errStopping = status.Error(codes.Unavailable, "fabric: the server is stopping")

// A Server serves registered services to every transport. It is safe for
// concurrent use.
type Server struct {
	options      options
	unaryServer  grpc.UnaryServerInterceptor
	streamServer grpc.StreamServerInterceptor

	mu       sync.Mutex // held while services are registered
	services atomic.Pointer[map[string]*service]

	life       context.Context //nolint:containedctx // handlers end with it
	stop       context.CancelFunc
	draining   context.Context //nolint:containedctx // ends when GracefulStop begins; changed under mu
	startDrain context.CancelFunc
	offers     sync.WaitGroup // listeners that have not withdrawn their services; added under mu
	stopping   atomic.Bool
	calls      atomic.Int64
	streams    transit.Callees // the streams that can move to another connection
	idle       chan struct{}   // receives a value when the last call ends while the server stops
}

var (
	_ grpc.ServiceRegistrar = (*Server)(nil)
	_ call.Handler          = serverHandler{}
	_ call.UnaryHandler     = serverHandler{}
)

// A service is the methods and metadata registered under one name.
type service struct {
	methods  map[string]*method
	metadata any
}

// A method has either a unary description or a streaming one.
type method struct {
	impl   any
	unary  *grpc.MethodDesc
	stream *grpc.StreamDesc
}

// NewServer returns a server without services and listeners.
func NewServer(opts ...Option) *Server {
	o := newOptions(opts)
	s := &Server{options: o, idle: make(chan struct{}, 1)}
	s.unaryServer = chainUnaryServer(o.unaryServer)
	s.streamServer = chainStreamServer(o.streamServer)
	s.services.Store(&map[string]*service{})
	s.life, s.stop = context.WithCancel(context.Background())
	s.draining, s.startDrain = context.WithCancel(s.life)
	return s
}

// RegisterService implements grpc.ServiceRegistrar. Unlike grpc-go's it may be
// called while the server serves. It panics where grpc-go ends the program: impl
// is not of the service's type, or the name is taken.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) {
	if impl != nil {
		want := reflect.TypeOf(d.HandlerType).Elem()
		if got := reflect.TypeOf(impl); !got.Implements(want) {
			panic(fmt.Sprintf("fabric: register %s: %v does not implement %v", d.ServiceName, got, want)) //nolint:forbidigo // grpc.ServiceRegistrar returns no error
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(d.ServiceName, newService(d, impl))
}

func newService(d *grpc.ServiceDesc, impl any) *service {
	v := &service{methods: map[string]*method{}, metadata: d.Metadata}
	for i := range d.Methods {
		v.methods[d.Methods[i].MethodName] = &method{impl: impl, unary: &d.Methods[i]}
	}
	for i := range d.Streams {
		v.methods[d.Streams[i].StreamName] = &method{impl: impl, stream: &d.Streams[i]}
	}
	return v
}

// add replaces the map of services, which calls may be reading, by a copy with one more.
func (s *Server) add(name string, v *service) {
	old := *s.services.Load()
	if _, taken := old[name]; taken {
		panic(fmt.Sprintf("fabric: register %s: the name is taken", name)) //nolint:forbidigo // as above
	}
	all := make(map[string]*service, len(old)+1)
	maps.Copy(all, old)
	all[name] = v
	s.services.Store(&all)
}

// GetServiceInfo implements reflection.ServiceInfoProvider, for reflection.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	infos := map[string]grpc.ServiceInfo{}
	for name, v := range *s.services.Load() {
		infos[name] = v.info()
	}
	return infos
}

func (v *service) info() grpc.ServiceInfo {
	i := grpc.ServiceInfo{Metadata: v.metadata, Methods: make([]grpc.MethodInfo, 0, len(v.methods))}
	for name, m := range v.methods {
		about := grpc.MethodInfo{Name: name}
		if m.stream != nil {
			about.IsClientStream, about.IsServerStream = m.stream.ClientStreams, m.stream.ServerStreams
		}
		i.Methods = append(i.Methods, about)
	}
	return i
}

// find returns the method of that full name, or an Unimplemented status.
func (s *Server) find(full string) (*method, error) {
	name, ok := strings.CutPrefix(full, "/")
	slash := strings.LastIndexByte(name, '/')
	if !ok || slash < 0 {
		return nil, status.Errorf(codes.Unimplemented, "malformed method name: %q", full)
	}
	v, known := (*s.services.Load())[name[:slash]]
	if known {
		if m := v.methods[name[slash+1:]]; m != nil {
			return m, nil
		}
	}
	switch {
	case s.options.unknownService != nil:
		return &method{stream: &grpc.StreamDesc{
			StreamName: "unknown_service_handler", Handler: s.options.unknownService, ClientStreams: true, ServerStreams: true,
		}}, nil
	case known:
		return nil, status.Errorf(codes.Unimplemented, "unknown method %v for service %v", name[slash+1:], name[:slash])
	}
	return nil, status.Errorf(codes.Unimplemented, "unknown service %v", name[:slash])
}

// newCodecState returns the state by which the messages of a call with that head are decoded and
// encoded.
func (s *Server) newCodecState(h *call.Head) (codecState, error) {
	f := codecState{
		codec: s.options.codec, encoding: h.Encoding, server: true,
		maxReceive: s.options.maxReceive, maxSend: s.options.maxSend,
	}
	if f.codec == nil {
		f.codec = s.codecFor(h.Subtype)
	}
	f.proto = isProto(f.codec)
	if h.Encoding == "" || h.Encoding == encoding.Identity {
		return f, nil
	}
	if f.compressor = encoding.GetCompressor(h.Encoding); f.compressor == nil {
		return codecState{}, f.checkEncoding()
	}
	return f, nil
}

// codecFor treats unknown codecs as protocol buffers, as grpc-go does.
func (s *Server) codecFor(subtype string) encoding.CodecV2 {
	if c := codecFor(subtype); c != nil {
		return c
	}
	s.options.logger.Warn("unsupported codec, proto is used", "subtype", subtype)
	return codecFor(protocodec.Name)
}

// beginCall counts a call that begins. It refuses the call while the server stops.
func (s *Server) beginCall() error {
	s.calls.Add(1)
	if s.stopping.Load() {
		s.endCall()
		return errStopping
	}
	return nil
}

func (s *Server) endCall() {
	if s.calls.Add(-1) == 0 && s.stopping.Load() {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}
