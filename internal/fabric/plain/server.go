package plain

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
	"github.com/outboard-run/outboard/internal/fabric/inflate"
	"github.com/outboard-run/outboard/internal/fabric/oneshot"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// A Server serves plain gRPC peers.
type Server struct {
	o       Options
	handler call.Handler
	grpc    *grpc.Server
	offers  *connListener
	offered sync.Once
	serving sync.WaitGroup
	pool    bufferPool

	conns           *acceptor.Slots
	messages, calls *grpcconn.Budget
	own             map[string]bool // whether a method of grpc-go's services streams
}

// NewServer returns a server that passes all calls to h.
func NewServer(h call.Handler, o Options) *Server {
	o.setDefaults()
	s := &Server{
		o: o, handler: h, offers: newOffers(), own: map[string]bool{},
		conns: acceptor.NewSlots(o.MaxConns), messages: newMessageBudget(&o), calls: newCallBudget(&o),
	}
	decompressor := inflate.New(s.messages.Inflating(), o.MaxMessage)
	options := append([]grpc.ServerOption{
		grpc.Creds(grpcconn.Credentials(newCredentials(o.TLS), s.connOptions())),
		grpc.InTapHandle(s.admit), grpc.ChainStreamInterceptor(serveStream),
		grpc.MaxConcurrentStreams(uint32(o.MaxCalls)), grpc.MaxHeaderListSize(maxHeaderList), //nolint:gosec // setDefaults bounds it
		grpc.RPCDecompressor(decompressor), //nolint:staticcheck // a registered decompressor serves the whole program
		grpc.ForceServerCodecV2(serverCodec{rawCodec{&s.pool}, decompressor}),
		experimental.BufferPool(&s.pool),
		grpc.MaxRecvMsgSize(o.MaxMessage),
		grpc.KeepaliveEnforcementPolicy(grpcconn.Keepalive()),
		grpc.UnknownServiceHandler(s.handle),
	}, o.Server...)
	s.grpc = grpc.NewServer(options...)
	if o.Descriptors != nil {
		s.reflect()
	}
	if o.Health != nil {
		grpc_health_v1.RegisterHealthServer(s.grpc, o.Health)
	}
	for service, info := range s.grpc.GetServiceInfo() {
		for _, method := range info.Methods {
			s.own["/"+service+"/"+method.Name] = method.IsClientStream || method.IsServerStream
		}
	}
	return s
}

func (s *Server) reflect() {
	options := reflection.ServerOptions{
		Services: services{s}, DescriptorResolver: resolver{s.o.Descriptors}, ExtensionResolver: s.o.Extensions,
	}
	reflectionv1.RegisterServerReflectionServer(s.grpc, reflection.NewServerV1(options))
	reflectionv1alpha.RegisterServerReflectionServer(s.grpc, reflection.NewServer(options))
}

// resolver also finds the descriptors of this package's own services.
type resolver struct{ Descriptors }

// FindFileByPath implements protodesc.Resolver.
func (r resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if file, err := r.Descriptors.FindFileByPath(path); err == nil {
		return file, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (r resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := r.Descriptors.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

// services lists the services for reflection: the handler's and this package's own. A service without a
// descriptor is left out: buf, evans and grpcurl describe request those of all services in the list, and
// end at the first that is missing.
type services struct{ s *Server }

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (l services) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := l.s.grpc.GetServiceInfo()
	for _, name := range l.s.o.Descriptors.Services() {
		if _, err := l.s.o.Descriptors.FindDescriptorByName(protoreflect.FullName(name)); err == nil {
			all[name] = grpc.ServiceInfo{}
		}
	}
	return all
}

// Serve serves the connections of l until Stop or GracefulStop, and closes l.
func (s *Server) Serve(l net.Listener) error { return s.serve(boundedListener{l, s}) }

func (s *Server) serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// ServeConn serves one connection that the caller has accepted, for a port
// that several protocols share and that bounds its connections. It takes ownership of nc and returns at
// once. The handshake of a *tls.Conn may be complete; its ALPN protocol must then be "h2".
func (s *Server) ServeConn(nc net.Conn) error {
	s.offered.Do(func() {
		s.serving.Go(func() {
			if err := s.serve(s.offers); err != nil {
				s.o.Logger.Warn("serve gRPC", "error", err)
			}
		})
	})
	return s.offers.offer(nc)
}

// HeldBytes returns the bytes that count for Options.MaxHeld.
func (s *Server) HeldBytes() int64 { return s.messages.Held() }

// GracefulStop stops accepting calls and waits for the calls in progress.
func (s *Server) GracefulStop() {
	_ = s.offers.Close()
	s.grpc.GracefulStop()
	s.serving.Wait()
	s.pool.Close()
}

// Stop ends all connections and calls and waits for their handlers.
func (s *Server) Stop() {
	_ = s.offers.Close()
	s.grpc.Stop()
	s.serving.Wait()
	s.pool.Close()
}

func identifyAddress(ctx context.Context) (tenant, name string, err error) {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		name = p.Addr.String()
	}
	return "", name, nil
}

// handle serves every call. A call that the server ends meanwhile has a context that ends.
func (s *Server) handle(_ any, ss grpc.ServerStream) error {
	h := s.head(ss)
	stream := &serverStream{ServerStream: ss, head: h, most: s.o.MaxMessage}
	if unary, ok := s.handler.(call.UnaryHandler); ok && !h.Streaming {
		return s.handleUnary(unary, h, stream)
	}
	return s.handler.Serve(stream)
}

func (s *Server) handleUnary(handler call.UnaryHandler, h *call.Head, stream *serverStream) error {
	ss := stream.ServerStream
	request, err := oneshot.Only(stream.Recv, errNoRequest, errManyRequests)
	if err != nil {
		return err
	}
	response, end, err := handler.ServeUnary(ss.Context(), h, request)
	ss.SetTrailer(end.Trailer)
	if len(end.Header) > 0 {
		if headerErr := ss.SetHeader(end.Header); headerErr != nil && err == nil {
			err = headerErr
		}
	}
	if err != nil || response == nil {
		response.Free()
		return err
	}
	return stream.Send(response)
}

// The messages are the same as grpc-go's.
var (
	errNoRequest    = status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	errManyRequests = status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
)

func (s *Server) head(ss grpc.ServerStream) *call.Head {
	ctx := ss.Context()
	method, _ := grpc.MethodFromServerStream(ss)
	if !strings.HasPrefix(method, "/") {
		method = "/" + method
	}
	a, _ := ctx.Value(admissionKey{}).(admission)
	h := &call.Head{Method: method, Tenant: a.tenant, Peer: a.peer, Streaming: a.streaming}
	h.Deadline, _ = ctx.Deadline()
	md, _ := metadata.FromIncomingContext(ctx)
	h.Metadata, h.Subtype = split(md)
	h.WaitForReady = slices.Contains(md[WaitForReadyKey], "true")
	if ts, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string }); ok {
		h.Encoding = ts.RecvCompress()
	}
	if h.Encoding == encoding.Identity {
		h.Encoding = ""
	}
	return h
}

// streaming reports whether a call of the method may have several messages in one direction.
// Plain gRPC does not transmit that, so it is true unless a descriptor says otherwise.
func (s *Server) streaming(method string) bool {
	if s.o.Descriptors == nil {
		return true
	}
	h := call.Head{Method: method}
	d, err := s.o.Descriptors.FindDescriptorByName(protoreflect.FullName(h.Service()))
	if err != nil {
		return true
	}
	service, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return true
	}
	m := service.Methods().ByName(protoreflect.Name(h.Name()))
	return m == nil || m.IsStreamingClient() || m.IsStreamingServer()
}

const contentType = "application/grpc"

// WaitForReadyKey is the metadata key by which a call waits for ready if its value is "true":
// HTTP/2 does not carry grpc.WaitForReady, which only the caller's library sees.
const WaitForReadyKey = "outboard-wait-for-ready"

// split separates the caller's metadata from the header fields of HTTP/2 and gRPC, and returns
// the content subtype.
func split(md metadata.MD) (rest metadata.MD, subtype string) {
	rest = make(metadata.MD, len(md))
	for key, values := range md {
		switch {
		case key == "content-type":
			subtype = strings.TrimLeft(strings.TrimPrefix(strings.ToLower(values[0]), contentType), "+;")
		case key == "grpc-trace-bin", key == "grpc-tags-bin", key == "grpc-previous-rpc-attempts":
			rest[key] = values
		case strings.HasPrefix(key, ":"), strings.HasPrefix(key, "grpc-"), key == "te":
		case key == transit.StreamKey, key == transit.MoveKey: // HTTP/2 can't move
		case key == WaitForReadyKey:
		default:
			rest[key] = values
		}
	}
	return rest, subtype
}

// serverStream is the callee's side of a call by grpc-go.
type serverStream struct {
	grpc.ServerStream
	head *call.Head
	most int
}

// Head implements call.ServerStream.
func (s *serverStream) Head() *call.Head { return s.head }

// Recv implements call.ServerStream.
func (s *serverStream) Recv() (*call.Message, error) {
	m := new(call.Message)
	if err := s.RecvMsg(m); err != nil {
		return nil, err
	}
	return m, nil
}

// Send implements call.ServerStream.
func (s *serverStream) Send(m *call.Message) error {
	m, err := unpack(m, s.head.Encoding, s.most)
	if err != nil {
		return err
	}
	counted, ok := s.ServerStream.(*grpcconn.Stream)
	if !ok {
		return s.SendMsg(m)
	}
	if err := counted.SendCounted(m, countedSize(m)); err != nil {
		m.Free()
		return err
	}
	return nil
}
