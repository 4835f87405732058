package node

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	grpctap "google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls"
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

// minPing is the shortest interval of a client's keepalive pings.
const minPing = 10 * time.Second

// newModelGRPC returns the gRPC server of --models.
func (m *models) newModelGRPC() *grpc.Server {
	return newCallServer(m.clientTimeout(), &m.bodies, m.openCall, func(s callRegistrar) {
		m.oip.RegisterGRPC(s)
		grpc_health_v1.RegisterHealthServer(s, health.NewServer())
		reflection.Register(s)
	})
}

// newCallServer returns a gRPC server whose connections are grpcConns. The context of each call is
// from open, which learns whether it has streams, and refuses a call before
// any of its messages is read by an error.
func newCallServer(timeout time.Duration, bodies *modelBodies, open func(ctx context.Context, md metadata.MD, streams bool) (context.Context, error), register func(callRegistrar)) *grpc.Server {
	decompressor := inflate.New(inflatingBodies{bodies}, maxModelMessage)
	streams := map[string]bool{}
	s := grpc.NewServer(
		grpc.Creds(grpcConnCredentials{insecure.NewCredentials()}), grpc.ConnectionTimeout(timeout), grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxModelMessage), grpc.MaxSendMsgSize(maxModelMessage),
		grpc.RPCDecompressor(decompressor), grpc.ForceServerCodecV2(countingCodec{decompressor}), //nolint:staticcheck // a registered decompressor serves the whole program
		grpc.MaxConcurrentStreams(maxModelStreams), grpc.MaxHeaderListSize(maxForwardedHead),
		grpc.InitialWindowSize(modelWindow), grpc.InitialConnWindowSize(modelWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
		grpc.InTapHandle(func(ctx context.Context, info *grpctap.Info) (context.Context, error) {
			return open(ctx, info.Header, streams[info.FullMethodName])
		}),
	)
	register(callRegistrar{s, timeout})
	for service, info := range s.GetServiceInfo() {
		for _, method := range info.Methods {
			streams["/"+service+"/"+method.Name] = method.IsClientStream || method.IsServerStream
		}
	}
	return s
}

// openCall admits a call, and returns its context with the grant of its API key.
func (m *models) openCall(ctx context.Context, md metadata.MD, streams bool) (context.Context, error) {
	p, _ := peer.FromContext(ctx)
	info, _ := p.AuthInfo.(grpcConnInfo)
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
	opened, err := info.conn.open(admitted, client, streams, leave)
	if err != nil {
		leave()
		return ctx, oip.RefusalStatus(err)
	}
	return opened, nil
}

// A callRegistrar registers services whose calls end as their grpcCalls require. A stream ends when
// the client makes it wait for longer than timeout.
type callRegistrar struct {
	*grpc.Server
	timeout time.Duration
}

// RegisterService implements grpc.ServiceRegistrar. It registers every method as a stream: grpc-go
// reads the request of a unary method before it calls the handler.
func (r callRegistrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Methods, d.Streams = nil, nil
	for _, method := range desc.Methods {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: method.MethodName, Handler: func(srv any, stream grpc.ServerStream) error {
			return runCall(stream, func(call *grpcCall) error { return serveSingle(call, method.Handler, srv, stream) })
		}})
	}
	for _, s := range desc.Streams {
		handle := s.Handler
		s.Handler = func(srv any, stream grpc.ServerStream) error {
			return runCall(stream, func(call *grpcCall) error { return handle(srv, &promptStream{stream, call, r.timeout}) })
		}
		d.Streams = append(d.Streams, s)
	}
	r.Server.RegisterService(&d, impl)
}

// runCall runs the handler of a call.
func runCall(stream grpc.ServerStream, handle func(*grpcCall) error) error {
	call, ok := stream.Context().Value(grpcCallKey{}).(*grpcCall)
	if !ok {
		return status.Error(codes.Internal, "the call did not pass the tap handler")
	}
	call.start()
	err := handle(call)
	if failed := call.finish(); failed != nil && err != nil {
		return oip.RefusalStatus(failed)
	}
	return err
}

// serveSingle serves a call of one request and one response.
func serveSingle(call *grpcCall, handle grpc.MethodHandler, srv any, stream grpc.ServerStream) error {
	reply, err := handle(srv, stream.Context(), func(request any) error { return receiveSingle(call, stream, request) }, nil)
	if err != nil {
		return err
	}
	return stream.SendMsg(reply)
}

// receiveSingle receives the request of a call, or returns an error as soon as the node has canceled
// the call. It does not wait for RecvMsg then, which would end the call with the status of a
// canceled context. RecvMsg ends with the call.
func receiveSingle(call *grpcCall, stream grpc.ServerStream, request any) error {
	complete, err := call.state()
	switch {
	case err != nil:
		return err
	case complete:
		return receiveCounted(call, stream, request)
	}
	received := make(chan error, 1)
	go func() { received <- receiveCounted(call, stream, request) }()
	select {
	case err := <-received:
		return err
	case <-call.aborted:
		_, err := call.state()
		return err
	}
}

// receiveCounted receives a message, or returns why the node has canceled the call: the message may be
// empty then.
func receiveCounted(call *grpcCall, stream grpc.ServerStream, message any) error {
	if err := stream.RecvMsg(&countedMessage{call, message}); err != nil {
		return err
	}
	_, err := call.state()
	return err
}

// A promptStream cancels its call when the client makes a message wait for longer than timeout, and
// has the bytes of a message counted until it is received.
type promptStream struct {
	grpc.ServerStream
	call    *grpcCall
	timeout time.Duration
}

// RecvMsg implements grpc.ServerStream.
func (s *promptStream) RecvMsg(message any) error {
	s.call.receive()
	if err := receiveCounted(s.call, s.ServerStream, message); err != nil {
		return err
	}
	size := messageHead
	if m, ok := message.(proto.Message); ok {
		size += proto.Size(m)
	}
	s.call.consume(int64(size))
	return nil
}

// messageHead is the size of the head of a gRPC message: a flag, and the length in 4 bytes.
const messageHead = 5

// SendMsg implements grpc.ServerStream.
func (s *promptStream) SendMsg(message any) error {
	timer := time.AfterFunc(s.timeout, func() {
		s.call.abort(outboard.Errorf(outboard.Busy, "", "the client reads its stream too slowly: %v is the longest that a message waits (`outboard up --client-timeout`)", s.timeout))
	})
	defer timer.Stop()
	return s.ServerStream.SendMsg(message)
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

// admit returns the context of a call over the fabric that the pool's API keys admit. Functions
// need no key: their apps' manifests name the models that they use.
func (m *models) admit(ctx context.Context) (context.Context, error) {
	if c, ok := fabric.CallerFromContext(ctx); ok && strings.HasPrefix(c.Tenant, calls.TenantIdentity) {
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
