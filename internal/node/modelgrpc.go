package node

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/model/oip"
)

// maxModelMessage bounds a message of the models' gRPC in bytes, like the body of a REST request.
const maxModelMessage = 256 << 20

// newModelGRPC returns the gRPC server of --models, which gets its calls from the port's HTTP
// server.
func (m *models) newModelGRPC() *grpc.Server {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxModelMessage), grpc.MaxSendMsgSize(maxModelMessage), grpc.StreamInterceptor(receiveSingly))
	m.oip.RegisterGRPC(s)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	return s
}

// runGRPC serves gRPC on the node's port for plain gRPC, and to programs that import the fabric, as
// soon as there is a model.
func (m *models) runGRPC(ctx context.Context) {
	if !m.awaitModel(ctx) {
		return
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		if err := m.remote.ServeTenants(ctx, m.registerForTenants, maxModelMessage); err != nil {
			m.log.Error("models are not served to functions", "error", err)
		}
	})
	if err := m.remote.Serve(ctx, m.registerServices, maxModelMessage, m.admitUnary, m.admitStream); err != nil {
		m.log.Error("models are not served over the fabric", "error", err)
	}
}

// registerServices registers the services that a node offers to programs of the fabric.
func (m *models) registerServices(to grpc.ServiceRegistrar) {
	m.oip.RegisterGRPC(to)
	m.texts.openai.RegisterGRPC(to)
}

// registerForTenants registers the services that a node offers to its tenants' functions.
func (m *models) registerForTenants(to grpc.ServiceRegistrar, node outboard.NodeID) {
	m.oip.RegisterForTenants(to, node)
	m.texts.openai.RegisterForTenants(to, node)
}

// admit returns the context of a call over the fabric that the pool's API keys admit. Functions
// need no key: their apps' manifests name the models that they use.
func (m *models) admit(ctx context.Context) (context.Context, error) {
	if c, ok := fabric.CallerFromContext(ctx); ok && strings.HasPrefix(c.Tenant, calls.TenantIdentity) {
		return ctx, nil
	}
	header := http.Header{}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, name := range []string{"authorization", "x-api-key"} {
		for _, value := range md.Get(name) {
			header.Add(name, value)
		}
	}
	admitted, err := m.node.keys.AdmitContext(ctx, header, isLocalCaller(ctx))
	if err != nil {
		return nil, oip.RefusalStatus(err)
	}
	return admitted, nil
}

// isLocalCaller reports whether a call over the fabric comes from a program of a node's machine:
// through a socket, whose credentials name its user, or from a loopback address.
func isLocalCaller(ctx context.Context) bool {
	c, ok := fabric.CallerFromContext(ctx)
	if !ok {
		return false
	}
	host, _, err := net.SplitHostPort(c.Peer)
	ip := net.ParseIP(host)
	return c.Tenant != "" || err == nil && ip != nil && ip.IsLoopback()
}

func (m *models) admitUnary(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := m.admit(ctx)
	if err != nil {
		return nil, err
	}
	return next(ctx, q)
}

func (m *models) admitStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := m.admit(stream.Context())
	if err != nil {
		return err
	}
	return next(srv, admittedStream{stream, ctx})
}

// An admittedStream is a stream with the grant of its caller.
type admittedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // grpc.ServerStream has one
}

// Context implements grpc.ServerStream.
func (s admittedStream) Context() context.Context { return s.ctx }
