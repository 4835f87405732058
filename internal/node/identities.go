package node

import (
	"crypto/subtle"
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// identities maps the credentials that this node has given to processes to their identities.
type identities struct {
	tenants atomic.Pointer[host.Host]
	// models is the credential of this node's own requests for models. It is created with the node:
	// credentials are checked before the models' service starts.
	models string
}

func (i *identities) set(tenants *host.Host) { i.tenants.Store(tenants) }

// tenantOf returns the tenant of a process, "" for others.
func (i *identities) tenantOf(pid int) string {
	tenants := i.tenants.Load()
	if tenants == nil || pid == 0 {
		return "" // no process was started yet
	}
	return tenants.Owner(pid)
}

// identify returns the identity that a credential proves, "" for none.
func (i *identities) identify(credential string) string {
	if subtle.ConstantTimeCompare([]byte(i.models), []byte(credential)) == 1 {
		return calls.ModelsIdentity
	}
	tenants := i.tenants.Load()
	if tenants == nil || credential == "" {
		return "" // no process was started yet
	}
	tenant, ok := tenants.TenantOfKey(credential)
	if !ok {
		return ""
	}
	return calls.TenantIdentity + tenant
}
