package node

import (
	"context"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/fabric/offer"
)

// ModelsSocket is the name of the socket in the data folder where this node serves its models to
// the functions of its tenants.
const ModelsSocket = "models.sock"

// runFunctions serves models to the functions of this node's tenants until ctx ends, over shared
// memory: a call enters no process between the tenant's and the node's.
func (m *models) runFunctions(ctx context.Context, ready func()) error {
	path := absolute(m.node.folder.at(ModelsSocket))
	limits := []fabric.Option{fabric.WithMaxReceive(maxModelMessage), fabric.WithMaxSend(maxModelMessage), fabric.WithLogger(m.log)}
	listener, err := fabric.Listen("unix:"+path, limits...)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	server := fabric.NewServer(append(limits, fabric.WithUnaryServerInterceptor(admitUnary(m.identifyTenant)), fabric.WithStreamServerInterceptor(admitStream(m.identifyTenant)))...)
	m.registerServices(server)
	ready()
	err = server.Run(ctx, listener)
	server.Stop()
	if ctx.Err() != nil {
		return nil // the server was stopped
	}
	return err
}

var errNoTenant = status.Error(codes.Unauthenticated, "only functions of this node call its models here")

// identifyTenant returns the context of a call whose caller is the tenant that the call's credential
// proves. A caller without one is refused: it could use models without an API key.
func (m *models) identifyTenant(ctx context.Context) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	shown := md.Get(offer.CredentialKey)
	if len(shown) != 1 {
		return nil, errNoTenant
	}
	identity := m.node.identities.identify(shown[0])
	if !strings.HasPrefix(identity, calls.TenantIdentity) {
		return nil, errNoTenant
	}
	p, _ := peer.FromContext(ctx)
	caller, _ := fabric.CallerFromContext(ctx)
	caller.Tenant = identity
	return peer.NewContext(ctx, &peer.Peer{Addr: p.Addr, AuthInfo: caller}), nil
}
