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

// The identity of a caller is the Tenant of its calls. A process checks it where a call enters the
// fabric, and the nodes on the call's way forward it:
//
//	tenant:NAME  a tenant's process, by the credential that its node gave it
//	node:models  a node's own requests for models, by a credential of its own
//	uid:NUMBER   a program on the node's socket, by the socket's credentials
//	""           a caller of the port for plain gRPC, which proves nothing
//
// Services whose names begin with "outboard." are reserved for the system. Only the identities that
// own them call and offer them, never through the port for plain gRPC.

const (
	reservedPrefix = "outboard."
	tenantPrefix   = reservedPrefix + "tenant."
	modelsPrefix   = reservedPrefix + "models."
	// TenantIdentity is the prefix of the identity of a tenant's process.
	TenantIdentity = "tenant:"
	// ModelsIdentity is the identity of a node that requests a model of another node.
	ModelsIdentity = "node:models"
)

// reserved reports whether a service is reserved for the system.
func reserved(service string) bool { return strings.HasPrefix(service, reservedPrefix) }

// isServiceName reports whether a client of gRPC can call a service of this name: the path of a call
// is /SERVICE/METHOD. Protobuf's names have letters, digits, "_" and "."; other stubs use more.
func isServiceName(name string) bool {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/", r)
	}
	return name != "" && !strings.ContainsFunc(name, other)
}

// owner returns the identity that may offer and call a reserved service, "" for none. A tenant's
// service is named outboard.tenant.TENANT.NODE, a node's models for other nodes
// outboard.models.NODE. No tenant's or node's name has a dot.
func owner(service string) string {
	if node, ok := strings.CutPrefix(service, modelsPrefix); ok && node != "" && !strings.Contains(node, ".") {
		return ModelsIdentity
	}
	rest, ok := strings.CutPrefix(service, tenantPrefix)
	tenant, node, two := strings.Cut(rest, ".")
	if !ok || !two || tenant == "" || node == "" || strings.Contains(node, ".") {
		return ""
	}
	return TenantIdentity + tenant
}

// mayUse returns a status if an identity may neither offer nor call a service.
func mayUse(service, identity string) error {
	if reserved(service) && (identity == "" || owner(service) != identity) {
		return status.Errorf(codes.PermissionDenied, "service %s is reserved for processes of the pool", service)
	}
	return nil
}

// offeredBy reports whether a node may offer a service: a reserved service names the node that
// offers it.
func offeredBy(service string, node outboard.NodeID) bool {
	return !reserved(service) || owner(service) != "" && strings.HasSuffix(service, "."+string(node))
}

// An Identifier returns the identity that a credential proves, "" for none.
type Identifier func(ctx context.Context, credential string) (identity string, err error)

// credentials caches the identities that credentials prove.
type credentials struct {
	identify Identifier // nil: no credential proves anything

	mu    sync.Mutex
	known map[string]provenIdentity
}

// A provenIdentity is the identity that a credential proves, "" for none, and until when it is
// cached.
type provenIdentity struct {
	identity string
	until    time.Time
}

const (
	// identityTTL is how long a credential still counts after its node has revoked it.
	identityTTL = 5 * time.Second
	// maxCredentials bounds the cached credentials.
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

// An Admission is what the node decides about a process that connects to its socket for programs.
type Admission string

const (
	// AdmitProgram admits a program of the node's user.
	AdmitProgram Admission = "program"
	// Refuse admits nothing: the process executes foreign code, as workers and ranks do.
	Refuse Admission = "refused"
)

// AdmitTenant admits the process of a tenant, which a guest may have taken over: each of its calls has
// to prove the tenant's identity, and a tenant has maxTenantConns connections at most.
func AdmitTenant(tenant string) Admission { return Admission(TenantIdentity + tenant) }

// tenant returns the identity of the tenant whose process is admitted, "" for others.
func (a Admission) tenant() string {
	if strings.HasPrefix(string(a), TenantIdentity) {
		return string(a)
	}
	return ""
}

// An Admitter decides about the process with a number, which connects.
type Admitter func(ctx context.Context, pid int) (Admission, error)

// An entrance is the point where calls enter the fabric: it refuses calls that their caller may not
// make. credentials is nil if callers can't prove an identity.
type entrance struct {
	handler     handler
	credentials *credentials
	// tenant is the identity that the callers have to prove, "" for any.
	tenant string
}

// identified returns the head of a call with the identity that its credential proves.
func (e *entrance) identified(ctx context.Context, h *call.Head) (*call.Head, error) {
	h, err := e.credentials.withIdentity(ctx, h)
	if err == nil && e.tenant != "" && h.Tenant != e.tenant {
		err = errCredential
	}
	return h, err
}

// admit returns the head of a call with its caller's identity.
func (e *entrance) admit(ctx context.Context, h *call.Head) (_ *call.Head, err error) {
	if e.credentials != nil {
		if h, err = e.identified(ctx, h); err != nil {
			return nil, err
		}
	} else if len(h.Metadata.Get(offer.CredentialKey)) > 0 {
		return nil, errCredential
	}
	return h, mayUse(h.Service(), h.Tenant)
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
