package node

import (
	"context"
	"log/slog"
	"os"
	"slices"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// What is where in a node's data folder for functions.
const (
	tenantsDir   = "tenants"
	artifactsDir = "artifacts"
)

// openTenants prepares for the processes that run tenants' apps, and opens the port
// for their requests.
func (n *Node) openTenants(ctx context.Context) (lifecycle.Resource, error) {
	var err error
	if n.web, err = listenLocal(ctx, n.opts.HTTP, defaultHTTP, "--http"); err != nil {
		return nil, err
	}
	log := n.opts.Log.With("plane", "tenant", "node", n.self.ID)
	config := tenant.Config{
		Node: n.self.ID, Boot: n.self.Boot, Artifacts: absolute(n.folder.at(artifactsDir)),
		StateSocket: absolute(n.folder.at(StateSocket)), NATS: n.opts.NATS, Creds: absolute(n.opts.Creds),
		CallsSocket: absolute(n.folder.at(client.CallsSocketName)), DevicesSocket: absolute(n.folder.at(DevicesSocket)), HTTP: n.webAddr(), Hosts: n.webHosts(), Heartbeat: n.opts.Heartbeat, Level: n.logLevel(log),
	}
	n.tenants, err = host.Open(ctx, host.Options{Config: config, Dir: absolute(n.folder.at(tenantsDir)), Launch: n.launchTenant(), Logger: log})
	return n.tenants, err
}

// launchTenant says how a tenant's process is started. What that logs has its plane and
// its node already.
func (n *Node) launchTenant() host.Launcher {
	launch := helper.Command(append(slices.Clone(n.opts.Helper), "tenant"), n.opts.Log)
	return func(socket *os.File) (host.Launched, error) { return launch("", socket) }
}

// logLevel is the least that is logged.
func (n *Node) logLevel(log *slog.Logger) slog.Level {
	level := slog.LevelDebug
	for level < slog.LevelError && !log.Enabled(context.Background(), level) {
		level += slog.LevelInfo - slog.LevelDebug
	}
	return level
}

// openApps follows the pool's apps.
func (n *Node) openApps(ctx context.Context) (lifecycle.Resource, error) {
	r, err := catalog.Open(ctx, catalog.Options{State: n.state, Self: n.self.ID, Logger: n.opts.Log.With("plane", "pool", "node", n.self.ID)})
	n.apps = r
	return r, err
}

// tenantOf is the tenant of an app, "" for none.
func (n *Node) tenantOf(app string) string {
	history, ok := n.apps.Get(app)
	if v := history.Current(); ok && v != nil {
		return v.App.Tenant
	}
	return ""
}

// keepTenants keeps a process for each tenant that has an app, and tells all of them
// which nodes there are.
func (n *Node) keepTenants(ctx context.Context, ready func()) error {
	ready()
	for {
		changed, moved := n.apps.Changed(), n.pool.Changed()
		var names []string
		for _, app := range n.apps.List() {
			if v := app.Current(); v != nil && !slices.Contains(names, v.App.Tenant) {
				names = append(names, v.App.Tenant)
			}
		}
		n.tenants.Tell(ctx, n.pool.Nodes()) // first: those that Keep starts know them from the beginning
		n.tenants.Keep(names)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-moved:
		}
	}
}
