// Package host starts tenants' processes for their node, and reaches them.
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

// Launcher starts a process that runs tenant.Run on socket, which stays the
// caller's to close.
type Launcher func(socket *os.File) (Launched, error)

// Launched is a process that was started.
type Launched interface {
	// Wait waits for the end, and says what was wrong with it.
	Wait() error
	// Kill ends it at once.
	Kill()
}

// Options of a Host.
type Options struct {
	// Config is what all processes are told, but for the tenant and its folder.
	Config tenant.Config
	// Dir holds the tenants' folders.
	Dir    string
	Launch Launcher
	// Groups is where the processes get control groups; nil: nowhere.
	Groups *cgroup.Tree
	Logger *slog.Logger
	// StartLimit is how long a process may take until it is ready, which it is before its apps
	// are. The default is three minutes: the pool's state may be silent for a while, and
	// one that is killed meanwhile begins again.
	StartLimit time.Duration
	// ReadyTimeout is how long a caller waits for a process before it is told why it
	// is not ready. The default is a minute.
	ReadyTimeout time.Duration
	// ReportInterval is how often the log says what keeps a process from being ready. The
	// default is ten seconds.
	ReportInterval time.Duration
	// CloseTimeout is how long a process may take to confirm that it reads no more requests on
	// the connections that it was passed. Then it is killed. The default is five seconds.
	CloseTimeout time.Duration
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.StartLimit = cmp.Or(o.StartLimit, 3*time.Minute)
	o.ReadyTimeout = cmp.Or(o.ReadyTimeout, time.Minute)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, 5*time.Second)
	o.ReportInterval = cmp.Or(o.ReportInterval, 10*time.Second)
}

// Host keeps a process for each tenant that it was asked for. It may be used by
// many goroutines.
type Host struct {
	opts    Options
	log     *slog.Logger
	life    context.Context //nolint:containedctx // of the processes
	cancel  context.CancelFunc
	running sync.WaitGroup

	passing sync.RWMutex // held while a connection is passed

	mu      sync.Mutex
	tenants map[string]*keeper
	shared  bool            // see Share
	members []outboard.Node // that processes are told
}

// Open starts nothing yet.
func Open(ctx context.Context, opts Options) (*Host, error) {
	opts.setDefaults()
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("tenants' folder: %w", err)
	}
	h := &Host{opts: opts, log: opts.Logger, tenants: make(map[string]*keeper)}
	h.life, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return h, nil
}

// Close ends all processes and waits for them.
func (h *Host) Close() error {
	h.cancel()
	h.running.Wait()
	return nil
}

// Tenants are those that have a process, or are about to.
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

// idle is how long a tenant without apps keeps a process that somebody has asked for:
// its first app is being checked there.
const idle = 5 * time.Minute

// SetTenants makes the tenants that are named have a process, and no others but those that
// were asked for of late.
func (h *Host) SetTenants(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, k := range h.tenants {
		if !slices.Contains(names, name) && time.Since(k.asked) > idle {
			k.cancel()
			delete(h.tenants, name)
		}
	}
	for _, name := range names {
		h.keeperLocked(name)
	}
}

// Config is what a tenant's process is told. It waits until the process is ready, and
// starts it where it has none.
func (h *Host) Config(ctx context.Context, name string) (tenant.Config, error) {
	k, err := h.awaitKeeper(ctx, name)
	if k == nil {
		return tenant.Config{}, err
	}
	return k.config, err
}

// awaitKeeper returns the keeper of a tenant's process, once that is ready.
func (h *Host) awaitKeeper(ctx context.Context, name string) (*keeper, error) {
	h.mu.Lock()
	k := h.keeperLocked(name)
	if k != nil {
		k.asked = time.Now()
	}
	h.mu.Unlock()
	if k == nil {
		return nil, outboard.Errorf(outboard.SessionLost, "tenant "+name, "this node is stopping")
	}
	return k, k.await(ctx)
}

// keeperLocked returns a tenant's keeper, a new one where there is none, or nil when
// the host is closed.
func (h *Host) keeperLocked(name string) *keeper {
	if k := h.tenants[name]; k != nil || h.life.Err() != nil {
		return k
	}
	k := &keeper{host: h, config: h.opts.Config, changed: make(chan struct{})}
	k.config.Protocol, k.config.Tenant, k.config.Dir, k.config.DevicesKey = tenant.Protocol, name, filepath.Join(h.opts.Dir, name), newKey()
	ctx, cancel := context.WithCancel(h.life)
	k.cancel = cancel
	h.tenants[name] = k
	h.running.Go(func() { k.run(ctx) })
	return k
}
