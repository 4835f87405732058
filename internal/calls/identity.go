package calls

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/offer"
)

// The identity of a caller is the Tenant of its calls. A process checks it where a call enters
// the fabric, and the nodes on its way forward it:
//
//	tenant:NAME  a tenant's process, by the credential that its node gave it
//	node:models  a node's own requests for models, by a credential of its own
//	uid:NUMBER   a program on the node's socket, by the socket's credentials
//	""           a caller of the port for plain gRPC, which proves nothing
//
// Services whose names begin with "outboard." are the system's own. They are called and
// offered by the identities that they belong to, and never through the port for plain gRPC. A
// node's models for functions belong to the node, and are called by tenants.

const (
	reservedPrefix = "outboard."
	tenantPrefix   = reservedPrefix + "tenant."
	modelsPrefix   = reservedPrefix + "models."
	tensorsPrefix  = reservedPrefix + "tensors."
	chatsPrefix    = reservedPrefix + "chats."
	// TenantIdentity begins the identity of a tenant's process.
	TenantIdentity = "tenant:"
	// ModelsIdentity is that of a node that asks another one for a model.
	ModelsIdentity = "node:models"
)

// reserved reports whether a service is the system's own.
func reserved(service string) bool { return strings.HasPrefix(service, reservedPrefix) }

// owner returns the identity that may offer a reserved service, and call it unless it is for
// tenants; "" for none. The name of a tenant's is outboard.tenant.TENANT.NODE, those of a node's
// models are outboard.models.NODE for nodes, and outboard.tensors.NODE and outboard.chats.NODE for
// tenants; no name has a dot.
func owner(service string) string {
	if isOfNode(service, modelsPrefix) || isForTenants(service) {
		return ModelsIdentity
	}
	rest, ok := strings.CutPrefix(service, tenantPrefix)
	tenant, node, two := strings.Cut(rest, ".")
	if !ok || !two || tenant == "" || node == "" || strings.Contains(node, ".") {
		return ""
	}
	return TenantIdentity + tenant
}

func isOfNode(service, prefix string) bool {
	node, ok := strings.CutPrefix(service, prefix)
	return ok && node != "" && !strings.Contains(node, ".")
}

// isForTenants reports whether a service is what a node offers to tenants.
func isForTenants(service string) bool {
	return isOfNode(service, tensorsPrefix) || isOfNode(service, chatsPrefix)
}

// mayOffer returns a status if an identity may not offer a service.
func mayOffer(service, identity string) error {
	if reserved(service) && (identity == "" || owner(service) != identity) {
		return status.Errorf(codes.PermissionDenied, "service %s is reserved for processes of the pool", service)
	}
	return nil
}

// mayCall returns a status if an identity may not call a service.
func mayCall(service, identity string) error {
	if isForTenants(service) && strings.HasPrefix(identity, TenantIdentity) {
		return nil
	}
	return mayOffer(service, identity)
}

// offeredBy reports whether a node may have a service: a tenant's process is of the node that
// the service names.
func offeredBy(service string, node outboard.NodeID) bool {
	return !reserved(service) || owner(service) != "" && strings.HasSuffix(service, "."+string(node))
}

// An Identifier returns the identity that a credential proves, "" for none.
type Identifier func(ctx context.Context, credential string) (identity string, err error)

// credentials remembers the identities that credentials prove.
type credentials struct {
	identify Identifier // nil: no credential proves anything

	mu    sync.Mutex
	known map[string]provenIdentity
}

// A provenIdentity is what a credential proves until a time; "": nothing.
type provenIdentity struct {
	identity string
	until    time.Time
}

const (
	// identityTTL is how long a credential counts that its node has revoked.
	identityTTL = 5 * time.Second
	// maxCredentials bounds the credentials that are remembered.
	maxCredentials = 4096
	// identifyLimit is how long the node may take to check a credential.
	identifyLimit = 5 * time.Second
	// maxCredential bounds a credential in bytes.
	maxCredential = 256
)

// check returns the identity that a credential proves.
func (c *credentials) check(ctx context.Context, credential string) (string, error) {
	now := time.Now()
	c.mu.Lock()
	proven, ok := c.known[credential]
	c.mu.Unlock()
	if !ok || now.After(proven.until) {
		if c.identify == nil || len(credential) > maxCredential {
			return "", errCredential
		}
		ctx, cancel := context.WithTimeout(ctx, identifyLimit)
		defer cancel()
		identity, err := c.identify(ctx, credential)
		if err != nil {
			return "", status.Errorf(codes.Unavailable, "credential: %v", err)
		}
		proven = c.store(credential, identity, now)
	}
	if proven.identity == "" {
		return "", errCredential
	}
	return proven.identity, nil
}

var errCredential = status.Error(codes.Unauthenticated, "the credential proves no identity on this node")

func (c *credentials) store(credential, identity string, now time.Time) provenIdentity {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCredentials {
		c.known = map[string]provenIdentity{}
	}
	proven := provenIdentity{identity, now.Add(identityTTL)}
	c.known[credential] = proven
	return proven
}

// withIdentity returns the head of a program's call with the identity that its credential
// proves, if it has one, and without the credential.
func (c *credentials) withIdentity(ctx context.Context, h *call.Head) (*call.Head, error) {
	shown := h.Metadata.Get(offer.CredentialKey)
	if len(shown) == 0 {
		return h, nil
	}
	if len(shown) != 1 {
		return nil, errCredential
	}
	identity, err := c.check(ctx, shown[0])
	if err != nil {
		return nil, err
	}
	h = h.Clone()
	h.Tenant = identity
	h.Metadata = h.Metadata.Copy()
	delete(h.Metadata, offer.CredentialKey)
	return h, nil
}

// An entrance is where calls enter the fabric: it refuses those that their caller may not make.
// credentials is nil where callers can't prove an identity.
type entrance struct {
	handler     handler
	credentials *credentials
}

// admit returns the head of a call with its caller's identity.
func (e *entrance) admit(ctx context.Context, h *call.Head) (_ *call.Head, err error) {
	if e.credentials != nil {
		if h, err = e.credentials.withIdentity(ctx, h); err != nil {
			return nil, err
		}
	} else if len(h.Metadata.Get(offer.CredentialKey)) > 0 {
		return nil, errCredential
	}
	return h, mayCall(h.Service(), h.Tenant)
}

// Serve implements call.Handler.
func (e *entrance) Serve(s call.ServerStream) error {
	h, err := e.admit(s.Context(), s.Head())
	if err != nil {
		return err
	}
	if h != s.Head() {
		s = identifiedStream{s, h}
	}
	return e.handler.Serve(s)
}

// ServeUnary implements call.UnaryHandler.
func (e *entrance) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	h, err := e.admit(ctx, h)
	if err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	return e.handler.ServeUnary(ctx, h, request)
}

// An identifiedStream is a stream whose head has its caller's identity.
type identifiedStream struct {
	call.ServerStream
	head *call.Head
}

// Head implements call.ServerStream.
func (s identifiedStream) Head() *call.Head { return s.head }
