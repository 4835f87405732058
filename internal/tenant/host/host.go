// Package host starts tenants' processes for their node, and connects the node to them.
package host

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/tenant"
)

// Launcher starts a process that runs tenant.Run on socket. The caller still closes the socket.
type Launcher func(socket *os.File) (Launched, error)

// Launched is a process that was started.
type Launched interface {
	// Wait waits for the end of the process, and returns its error.
	Wait() error
	// Kill ends the process at once.
	Kill()
}

// Options are the options of a Host.
type Options struct {
	// Config is the configuration of all processes, without the tenant and its folder.
	Config tenant.Config
	// Dir holds the tenants' folders.
	Dir    string
	Launch Launcher
	// Groups is the tree in which the processes get control groups; nil: they get none.
	Groups *cgroup.Tree
	Logger *slog.Logger
	// StartLimit is how long a process may take until it is ready, which is before its apps are
	// ready. The default is three minutes: the pool's state may be unavailable for a while, and a
	// process that is killed meanwhile starts from the beginning.
	StartLimit time.Duration
	// ReadyTimeout is how long a caller waits for a process before it gets the reason why the
	// process is not ready. The default is a minute.
	ReadyTimeout time.Duration
	// ReportInterval is how often the log reports why a process is not ready. The default is ten
	// seconds.
	ReportInterval time.Duration
	// CloseTimeout is how long a process may take to confirm that it reads no more requests on the
	// connections passed to it. Then it is killed. The default is five seconds.
	CloseTimeout time.Duration
	// PingInterval is how often a process is pinged. A process that does not respond for PingLimit is
	// killed, and started again. The defaults are ten and thirty seconds.
	PingInterval, PingLimit time.Duration
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.StartLimit = cmp.Or(o.StartLimit, 3*time.Minute)
	o.ReadyTimeout = cmp.Or(o.ReadyTimeout, time.Minute)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, 5*time.Second)
	o.ReportInterval = cmp.Or(o.ReportInterval, 10*time.Second)
	o.PingInterval = cmp.Or(o.PingInterval, 10*time.Second)
	o.PingLimit = cmp.Or(o.PingLimit, 30*time.Second)
}

// Host runs a process for each tenant that was set or requested. It may be used by many goroutines.
type Host struct {
	opts    Options
	log     *slog.Logger
	life    context.Context //nolint:containedctx // of the processes
	cancel  context.CancelFunc
	running sync.WaitGroup

	passing sync.RWMutex // held while a connection is passed

	mu      sync.Mutex
	tenants map[string]*supervisor
	ending  map[*supervisor]bool // of tenants that are not in tenants any more: their processes end
	shared  bool                 // see Share
	members []outboard.Node      // sent to processes
}

// Open returns a Host without processes.
func Open(ctx context.Context, opts Options) (*Host, error) {
	opts.setDefaults()
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("tenants' folder: %w", err)
	}
	h := &Host{opts: opts, log: opts.Logger, tenants: make(map[string]*supervisor), ending: make(map[*supervisor]bool)}
	h.life, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return h, nil
}

// Close ends all processes and waits for them.
func (h *Host) Close() error {
	h.cancel()
	h.running.Wait()
	return nil
}

// Tenants returns the tenants that have a process, or are about to.
func (h *Host) Tenants() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name := range h.tenants {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// idle is how long a tenant without apps keeps a requested process: its first app is being checked
// there.
const idle = 5 * time.Minute

// SetTenants starts processes for the named tenants, and ends all others but those requested of
// late.
func (h *Host) SetTenants(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, k := range h.tenants {
		if !slices.Contains(names, name) && time.Since(k.lastRequested) > idle {
			k.cancel()
			delete(h.tenants, name)
			h.ending[k] = true
		}
	}
	for _, name := range names {
		h.supervisorLocked(name)
	}
}

// Config returns the configuration of a tenant's process. It waits until the process is ready, and
// starts it if there is none.
func (h *Host) Config(ctx context.Context, name string) (tenant.Config, error) {
	k, err := h.awaitSupervisor(ctx, name)
	if k == nil {
		return tenant.Config{}, err
	}
	return k.config, err
}

// awaitSupervisor returns the supervisor of a tenant's process, once that is ready.
func (h *Host) awaitSupervisor(ctx context.Context, name string) (*supervisor, error) {
	h.mu.Lock()
	k := h.supervisorLocked(name)
	if k != nil {
		k.lastRequested = time.Now()
	}
	h.mu.Unlock()
	if k == nil {
		return nil, outboard.Errorf(outboard.SessionLost, "tenant "+name, "this node is stopping")
	}
	return k, k.await(ctx)
}

// supervisorLocked returns a tenant's supervisor, a new one if there is none, or nil if the host is closed.
func (h *Host) supervisorLocked(name string) *supervisor {
	if k := h.tenants[name]; k != nil || h.life.Err() != nil {
		return k
	}
	k := &supervisor{host: h, config: h.opts.Config, changed: make(chan struct{})}
	k.config.Protocol, k.config.Tenant, k.config.Dir, k.config.DevicesKey = tenant.Protocol, name, filepath.Join(h.opts.Dir, name), newKey()
	ctx, cancel := context.WithCancel(h.life)
	k.cancel = cancel
	h.tenants[name] = k
	h.running.Go(func() {
		k.run(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.ending, k)
	})
	return k
}
