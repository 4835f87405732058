package node

import (
	"context"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	grpctap "google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
	"github.com/outboard-run/outboard/internal/fabric/inflate"
	"github.com/outboard-run/outboard/internal/model/oip"
)

// maxModelMessage bounds a message of the models' gRPC in bytes, like the body of a REST request.
const maxModelMessage = 256 << 20

// Bounds of a gRPC connection at --models: its calls, and the bytes of a stream that the client may
// send before the node reads them.
const (
	maxModelStreams = 250
	modelWindow     = 2 << 20
)

// maxGRPCCalls bounds the calls of a connection whose responses the client has not read.
const maxGRPCCalls = 2 * maxModelStreams

// newModelGRPC returns the gRPC server of --models.
func (m *models) newModelGRPC() *grpc.Server {
	return newCallServer(m.clientTimeout(), m.bodies, m.openCall, func(s callRegistrar) {
		m.oip.RegisterGRPC(s)
		probes := health.NewServer()
		probes.SetServingStatus(oip.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
		grpc_health_v1.RegisterHealthServer(s, probes)
		reflection.Register(s)
	})
}

// An openFunc returns the context of a call on a connection, and refuses the call before any of its
// messages is read by an error. It learns whether the call streams.
type openFunc func(ctx context.Context, conn *grpcconn.Conn, md metadata.MD, streams bool) (context.Context, error)

// newCallServer returns a gRPC server whose calls begin with open.
func newCallServer(timeout time.Duration, bodies *modelBodies, open openFunc, register func(callRegistrar)) *grpc.Server {
	decompressor := inflate.New(bodies.Inflating(), maxModelMessage)
	streams := map[string]bool{}
	s := grpc.NewServer(
		grpc.Creds(grpcconn.Credentials(insecure.NewCredentials(), grpcConnOptions(timeout, bodies))), grpc.ConnectionTimeout(timeout), grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxModelMessage), grpc.MaxSendMsgSize(maxModelMessage),
		grpc.RPCDecompressor(decompressor), grpc.ForceServerCodecV2(countingCodec{decompressor}), //nolint:staticcheck // a registered decompressor serves the whole program
		grpc.MaxConcurrentStreams(maxModelStreams), grpc.MaxHeaderListSize(maxForwardedHead),
		grpc.InitialWindowSize(modelWindow), grpc.InitialConnWindowSize(modelWindow),
		grpc.KeepaliveEnforcementPolicy(grpcconn.Keepalive()),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
		grpc.InTapHandle(func(ctx context.Context, info *grpctap.Info) (context.Context, error) {
			ctx, conn := grpcconn.FromTap(ctx)
			return open(ctx, conn, info.Header, streams[info.FullMethodName])
		}),
	)
	register(callRegistrar{s})
	for service, info := range s.GetServiceInfo() {
		for _, method := range info.Methods {
			streams["/"+service+"/"+method.Name] = method.IsClientStream || method.IsServerStream
		}
	}
	return s
}

// grpcConnOptions returns the options of connections that may make the node wait for timeout.
func grpcConnOptions(timeout time.Duration, bodies *modelBodies) *grpcconn.Options {
	return &grpcconn.Options{
		Budget: bodies.Budget, MaxCalls: maxGRPCCalls, Timeout: timeout, Setting: "`outboard up --client-timeout`", Refuse: oip.RefusalStatus,
	}
}

// openCall admits a call, and returns its context with the grant of its API key.
func (m *models) openCall(ctx context.Context, conn *grpcconn.Conn, md metadata.MD, streams bool) (context.Context, error) {
	p, _ := peer.FromContext(ctx)
	if m.spans != nil {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(headerOf(md, "traceparent", "tracestate")))
	}
	admitted, err := m.admitWith(ctx, md, isLoopback(p.Addr.String()))
	if err != nil {
		return ctx, err
	}
	client := ownerOf(admitted)
	leave, err := m.requests.enter(client)
	if err != nil {
		return ctx, oip.RefusalStatus(err)
	}
	opened, err := conn.Open(admitted, grpcconn.Client{Name: client, Streams: streams, Ended: leave})
	if err != nil {
		leave()
		return ctx, oip.RefusalStatus(err)
	}
	return opened, nil
}

// A callRegistrar registers services whose calls their connections bound.
type callRegistrar struct{ *grpc.Server }

// RegisterService implements grpc.ServiceRegistrar. It registers every method as a stream: grpc-go
// reads the request of a unary method before it calls the handler.
func (r callRegistrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Methods, d.Streams = nil, nil
	for _, method := range desc.Methods {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: method.MethodName, Handler: func(srv any, stream grpc.ServerStream) error {
			return grpcconn.Serve(stream, func(s *grpcconn.Stream) error { return serveSingle(method.Handler, srv, promptResponse{s}) })
		}})
	}
	for _, s := range desc.Streams {
		handle := s.Handler
		s.Handler = func(srv any, stream grpc.ServerStream) error {
			return grpcconn.Serve(stream, func(s *grpcconn.Stream) error { return handle(srv, promptStream{s}) })
		}
		d.Streams = append(d.Streams, s)
	}
	r.Server.RegisterService(&d, impl)
}

// A promptResponse counts a response until it is sent, and its request as well. A model's outputs may
// be much larger than its inputs.
type promptResponse struct{ *grpcconn.Stream }

// SendMsg implements grpc.ServerStream.
func (s promptResponse) SendMsg(m any) error { return s.SendCounted(m, responseSize(m)) }

// responseSize returns the size of a response, in bytes, 0 for one that is not counted: most are small.
func responseSize(m any) int64 {
	message, ok := m.(proto.Message)
	if !ok {
		return 0
	}
	if size := int64(proto.Size(message)); size > freeBody {
		return size
	}
	return 0
}

// serveSingle serves a call of one request and one response. The request counts until the response is
// sent.
func serveSingle(handle grpc.MethodHandler, srv any, stream grpc.ServerStream) error {
	reply, err := handle(srv, stream.Context(), stream.RecvMsg, nil)
	if err != nil {
		return err
	}
	return stream.SendMsg(reply)
}

// A promptStream counts a message until the handler has it, which counts it itself from then on, and a
// response until it is sent.
type promptStream struct{ *grpcconn.Stream }

// SendMsg implements grpc.ServerStream.
func (s promptStream) SendMsg(m any) error { return s.SendCounted(m, responseSize(m)) }

// RecvMsg implements grpc.ServerStream.
func (s promptStream) RecvMsg(message any) error {
	return s.Stream.RecvMsg(passingMessage{message})
}

// runGRPC serves gRPC on the node's port for plain gRPC, and to programs that import the fabric, as
// soon as there is a model.
func (m *models) runGRPC(ctx context.Context) {
	if !m.awaitModel(ctx) {
		return
	}
	if err := m.remote.Serve(ctx, m.registerServices, maxModelMessage, admitUnary(m.admit), admitStream(m.admit)); err != nil {
		m.log.Error("models are not served over the fabric", "error", err)
	}
}

// registerServices registers the services for models that programs and functions call.
func (m *models) registerServices(to grpc.ServiceRegistrar) {
	m.oip.RegisterGRPC(to)
	m.texts.openai.RegisterGRPC(to)
}

// admit returns the context of a call over the fabric that the pool's API keys admit. Apps need no
// key: their manifests name the models that functions use, and the service that workflows call.
func (m *models) admit(ctx context.Context) (context.Context, error) {
	if isTenant(ctx) {
		return ctx, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return m.admitWith(ctx, md, isLocalCaller(ctx))
}

// admitWith returns the context of a call that names an API key in its metadata.
func (m *models) admitWith(ctx context.Context, md metadata.MD, isLocal bool) (context.Context, error) {
	admitted, err := m.node.keys.AdmitContext(ctx, headerOf(md, "authorization", "x-api-key"), isLocal)
	if err != nil {
		return nil, oip.RefusalStatus(err)
	}
	return admitted, nil
}

// headerOf returns those metadata of a call as header fields.
func headerOf(md metadata.MD, names ...string) http.Header {
	header := http.Header{}
	for _, name := range names {
		for _, value := range md.Get(name) {
			header.Add(name, value)
		}
	}
	return header
}

// isLocalCaller reports whether a call over the fabric comes from a program of a node's machine:
// through a socket, whose credentials name its user, or from a loopback address.
func isLocalCaller(ctx context.Context) bool {
	c, ok := fabric.CallerFromContext(ctx)
	if !ok {
		return false
	}
	return c.Tenant != "" || isLoopback(c.Peer)
}

// isLoopback reports whether the host of an address is a loopback address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// An admission returns the context of a call with the grant or the identity of its caller, or
// refuses the call.
type admission func(ctx context.Context) (context.Context, error)

// admitUnary returns the interceptor of unary calls that pass an admission.
func admitUnary(admit admission) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, err := admit(ctx)
		if err != nil {
			return nil, err
		}
		return next(ctx, q)
	}
}

// admitStream returns the interceptor of streams that pass an admission.
func admitStream(admit admission) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, err := admit(stream.Context())
		if err != nil {
			return err
		}
		return next(srv, admittedStream{stream, ctx})
	}
}

// An admittedStream is a stream with the context of its admission.
type admittedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // grpc.ServerStream has one
}

// Context implements grpc.ServerStream.
func (s admittedStream) Context() context.Context { return s.ctx }
