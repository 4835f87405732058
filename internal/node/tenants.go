package node

import (
	"context"
	"slices"

	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// Names in a node's data folder for functions.
const (
	tenantsDir   = "tenants"
	artifactsDir = "artifacts"
)

// tenantSupervisor maintains a process for each tenant that has an app, and sends all of them the nodes
// of the pool.
type tenantSupervisor struct {
	apps    *catalog.Catalog
	pool    *pool.Pool
	tenants *host.Host
}

// run maintains the processes until ctx ends.
func (k *tenantSupervisor) run(ctx context.Context, ready func()) error {
	ready()
	for {
		changed, moved := k.apps.Changed(), k.pool.Changed()
		var names []string
		for _, app := range k.apps.List() {
			if v := app.Current(); v != nil && !slices.Contains(names, v.App.Tenant) {
				names = append(names, v.App.Tenant)
			}
		}
		k.tenants.SetMembers(ctx, k.pool.Nodes()) // first, for processes that SetTenants starts
		k.tenants.SetTenants(names)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-moved:
		}
	}
}

// tenantOf returns the tenant of an app, "" for none.
func tenantOf(apps *catalog.Catalog, app string) string {
	history, ok := apps.Get(app)
	if v := history.Current(); ok && v != nil {
		return v.App.Tenant
	}
	return ""
}
