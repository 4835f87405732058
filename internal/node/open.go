package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// openTenants prepares for the processes that run tenants' apps, and opens the port
// for their requests.
func (n *Node) openTenants(ctx context.Context) (lifecycle.Resource, error) {
	web, err := listenLocal(ctx, n.opts.HTTP, defaultHTTP, "--http")
	if err != nil {
		return nil, err
	}
	n.ingress = &ingress{listener: web, apps: n.apps, health: n.health, log: n.log, clientTimeout: n.opts.ClientTimeout}
	log := n.opts.Log.With("plane", "tenant", "node", n.self.ID)
	config := tenant.Config{
		Node: n.self.ID, Boot: n.self.Boot, Artifacts: absolute(n.folder.at(artifactsDir)),
		StateSocket: absolute(n.folder.at(StateSocket)),
		CallsSocket: absolute(n.folder.at(client.CallsSocketName)), DevicesSocket: absolute(n.folder.at(DevicesSocket)), ModelsSocket: absolute(n.folder.at(ModelsSocket)), ModelBypassSocket: absolute(n.folder.at(ModelBypassSocket)), HTTP: n.ingress.addr(), Hosts: n.ingress.hosts(n.opts.HTTPHosts), Limits: n.opts.TenantLimits, MaxExecutions: n.opts.MaxExecutions, OutgoingPrivate: n.opts.OutgoingPrivate, ClientTimeout: n.opts.ClientTimeout, Heartbeat: n.opts.Heartbeat, Level: n.logLevel(log),
	}
	n.tenants, err = host.Open(ctx, host.Options{Config: config, Dir: absolute(n.folder.at(tenantsDir)), Launch: n.launchTenant(), Groups: n.groups, Logger: log})
	if err != nil {
		return nil, err
	}
	n.ingress.tenants = n.tenants
	n.lender.tenants.Store(n.tenants)
	n.ingress.models = n.models
	n.identities.set(n.tenants)
	n.broker = &deviceBroker{
		pool: n.pool, tenants: n.tenants, apps: n.apps, sessions: n.sessions, grants: n.grants, identity: n.identity, deadAfter: n.opts.DeadAfter,
	}
	return n.tenants, nil
}

// openGroups prepares the control groups of workers and tenants' processes. A node that is killed
// leaves them behind; the next node of the same folder removes them.
func (n *Node) openGroups(context.Context) (lifecycle.Resource, error) {
	n.groups = cgroup.Open(folderKey(n.folder))
	if err := n.groups.Err(); err != nil {
		n.log.Warn("there are no control groups: workers and tenants' processes are bounded by resource limits only", "reason", err)
	}
	if n.opts.OwnsProcess {
		if err := n.groups.Join(); err != nil {
			n.log.Warn("this node competes for processors with all of its tenants and workers together", "reason", err)
		}
	}
	return n.groups, nil
}

// folderKey returns a name for the resources that the node of a data folder has outside of it: it
// is unique on the machine, and the same for the next node of the folder.
func folderKey(f *folder) string {
	sum := sha256.Sum256([]byte(absolute(f.path)))
	return hex.EncodeToString(sum[:8])
}

// launchTenant returns the launcher of tenants' processes. Their log records name their plane and
// node already.
func (n *Node) launchTenant() host.Launcher {
	launch := helper.CommandWith(append(slices.Clone(n.opts.Helper), "tenant"), tenantEnviron(os.Environ()), n.opts.Log)
	return func(socket *os.File) (host.Launched, error) { return launch("", socket) }
}

// tenantVariables are the environment variables that are passed to tenants' processes: those of Go's
// runtime and of loaders, the certificates for outgoing requests, and OpenTelemetry's. A name that
// ends in "_" is a prefix.
var tenantVariables = []string{
	"PATH", "HOME", "TMPDIR", "LANG", "LC_", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "OTEL_",
	"GODEBUG", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GOTRACEBACK", "GORACE", "GOCOVERDIR",
}

// tenantEnviron returns the environment of a tenant's process. The node's may contain secrets, such
// as the credentials of an object store, which a guest that escapes would read.
func tenantEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.ContainsFunc(tenantVariables, func(allowed string) bool {
			return name == allowed || strings.HasSuffix(allowed, "_") && strings.HasPrefix(name, allowed)
		})
	})
}

// logLevel returns the lowest level that is logged.
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

func (n *Node) openArtifacts(context.Context) (lifecycle.Resource, error) {
	var err error
	n.artifacts, err = artifact.Open(artifact.Options{Dir: n.folder.at(artifactsDir), Logger: n.log, Source: &n.modelFiles})
	return nothingToClose{}, err
}

// nothingToClose is a resource whose Close does nothing.
type nothingToClose struct{}

// Close implements lifecycle.Resource.
func (nothingToClose) Close() error { return nil }
