package function

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/outboard-run/outboard/internal/function/image"
)

// features are the proposals that modules may use. Threads are not among them, because a memory has
// one instance, nor are proposals that would put references into globals.
const features = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst

// Options configure a Runtime.
type Options struct {
	// Reset is the method of resetting; the zero value is the fastest that the kernel has.
	Reset image.Method
	// KeepDirty bounds the bytes that a reset copies back, which stay with an idle
	// slot. 0 means image.DefaultKeepDirty.
	KeepDirty int
	// CacheDir keeps rewritten modules and compiled code over restarts, until they were
	// not used for a month. It must be private to this program: its contents are executed.
	// "" keeps none.
	CacheDir string
	// Metrics registers the runtime's metrics. nil registers none.
	Metrics prometheus.Registerer
	// Log is for operators. The default discards.
	Log *slog.Logger
}

// Runtime runs functions.
type Runtime struct {
	engine  wazero.Runtime
	cache   wazero.CompilationCache // nil without a directory
	modules *moduleCache
	resets  *image.Resetter
	pool    image.Pool
	log     *slog.Logger
	mu      sync.Mutex
	open    map[*Function]bool
	closing bool
	once    sync.Once
	ended   error // the result of Close

	metrics   prometheus.Registerer // nil without
	collector *collector
	past      tallies
}

// Open creates a Runtime.
func Open(ctx context.Context, o Options) (*Runtime, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	resets, fallback, err := image.NewResetter(o.Reset, o.KeepDirty)
	if err != nil {
		return nil, err
	}
	if fallback != nil {
		o.Log.WarnContext(ctx, "functions are reset by dropping all their pages, which is slower and scales worse", "cause", fallback)
	}
	r := &Runtime{resets: resets, log: o.Log, open: make(map[*Function]bool)}
	err = r.start(ctx, o.CacheDir)
	if err == nil && o.Metrics != nil {
		err = r.register(o.Metrics)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Runtime) start(ctx context.Context, cacheDir string) (err error) {
	if r.modules, err = openModuleCache(cacheDir, r.log); err != nil {
		return err
	}
	config := wazero.NewRuntimeConfig().WithCoreFeatures(features)
	if cacheDir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(cacheDir)
		if err != nil {
			return fmt.Errorf("cache of compiled code: %w", err)
		}
		r.cache, config = cache, config.WithCompilationCache(cache)
		if err := removeUnused(cacheDir, time.Now()); err != nil {
			r.log.WarnContext(ctx, "old compiled modules are not all removed", "error", err)
		}
	}
	r.engine = wazero.NewRuntimeWithConfig(ctx, config)
	return provide(ctx, r.engine)
}

// register registers the runtime's metrics.
func (r *Runtime) register(metrics prometheus.Registerer) error {
	c := newCollector(r)
	if err := metrics.Register(c); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	r.metrics, r.collector = metrics, c
	return nil
}

// Reset returns the method by which functions are reset: image.Scan or image.Drop.
func (r *Runtime) Reset() image.Method { return r.resets.Method() }

// add registers a function, unless the runtime closes.
func (r *Runtime) add(f *Function) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	r.open[f] = true
	return true
}

// remove unregisters a closed function.
func (r *Runtime) remove(f *Function) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, f)
	r.past.addClosed(f)
}

// Close closes all functions and waits for their calls.
func (r *Runtime) Close() error {
	r.once.Do(func() { r.ended = r.close() })
	return r.ended
}

func (r *Runtime) close() error {
	if r.collector != nil {
		r.metrics.Unregister(r.collector)
	}
	r.mu.Lock()
	r.closing = true
	open := r.open
	r.open = make(map[*Function]bool)
	r.mu.Unlock()
	var errs []error
	for f := range open {
		errs = append(errs, f.Close())
	}
	if r.engine != nil {
		errs = append(errs, r.engine.Close(context.Background()))
	}
	if r.cache != nil {
		errs = append(errs, r.cache.Close(context.Background()))
	}
	return errors.Join(append(errs, r.pool.Close(), r.resets.Close())...)
}
