package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// ID names an execution of the tenant: "APP/NAME". Its log has the key
// "TENANT/APP/NAME".
type ID string

// App returns the app of the execution.
func (id ID) App() string {
	app, _, _ := strings.Cut(string(id), "/")
	return app
}

// Name returns the execution's name within its app.
func (id ID) Name() string {
	_, name, _ := strings.Cut(string(id), "/")
	return name
}

// Options configures an Engine.
type Options struct {
	// Tenant is the owner of the workflows, Node the node on which they run.
	Tenant, Node string

	Log       Log
	Claims    Claims
	Workflows Workflows
	Functions Functions
	// Services may be nil: then calls of services fail.
	Services Services
	Values   Values
	Events   Events

	// Executions bounds the executions that run, or wait for a slot, for a time or for an event;
	// the default is DefaultExecutions. Beyond it, executions that others run as tasks have a
	// sixteenth of it at each depth, since those wait for them. Running bounds those that run at
	// once; the default is 1,000.
	Executions, Running int
	// Held bounds the values that the tasks of all executions hold in memory; nil: no bound. An
	// execution that exceeds it is cancelled.
	Held *quota.Budget
	// Retention is how long a finished execution can be read. The default is a day.
	Retention time.Duration

	Registerer prometheus.Registerer
	// Tracer creates the spans of executions and steps. The default creates none.
	Tracer trace.Tracer
	Logger *slog.Logger
}

// DefaultExecutions is the default of Options.Executions.
const DefaultExecutions = 11_000

func (o *Options) setDefaults() {
	if o.Executions == 0 {
		o.Executions = DefaultExecutions
	}
	if o.Running == 0 {
		o.Running = 1000
	}
	if o.Retention == 0 {
		o.Retention = 24 * time.Hour
	}
	if o.Tracer == nil {
		o.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	switch {
	case o.Tenant == "" || strings.Contains(o.Tenant, "/"):
		return outboard.Errorf(outboard.Invalid, "open workflows", "tenant %q: it must be a word", o.Tenant)
	case o.Node == "":
		return outboard.Errorf(outboard.Invalid, "open workflows", "no name of the node")
	case o.Log == nil || o.Claims == nil || o.Workflows == nil || o.Functions == nil || o.Values == nil || o.Events == nil:
		return outboard.Errorf(outboard.Invalid, "open workflows", "a log, claims, workflows, functions, values and events are needed")
	case o.Executions < 0 || o.Running < 0 || o.Retention < 0:
		return outboard.Errorf(outboard.Invalid, "open workflows", "limits must not be negative")
	}
	return nil
}

// Engine runs the executions of one tenant on one node.
// All methods may be called by several goroutines.
type Engine struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	// writer identifies this engine's records, also among those of earlier engines on the node.
	writer string

	ctx      context.Context //nolint:containedctx // It is the engine's life, which Close ends.
	stop     context.CancelFunc
	slots    chan struct{} // as many as may run
	takeover *takeover
	work     sync.WaitGroup
	failing  failing

	*history

	mu     sync.Mutex
	closed bool
	runs   map[ID]*executor
	// children counts those of runs that were started as tasks, by depth.
	children [maxDepth + 1]int
}

// Open starts the engine. It takes over executions whose owner has left.
func Open(_ context.Context, opts Options) (*Engine, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		opts: opts, log: opts.Logger, writer: opts.Node + "/" + nonce(4),
		slots: make(chan struct{}, opts.Running), runs: map[ID]*executor{},
		history: &history{log: opts.Log, tenant: opts.Tenant, summaries: newSummaryCache(opts.Retention)},
	}
	e.failing.log = opts.Logger
	e.takeover = &takeover{e: e, slots: make(chan struct{}, maxTakeovers)}
	var err error
	e.metrics, err = newMetrics(opts.Registerer, e.countRuns, func() int { return len(e.slots) })
	if err != nil {
		return nil, fmt.Errorf("open workflows: %w", err)
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.work.Go(e.takeover.adoptOrphans)
	e.work.Go(e.purgeLoop)
	e.work.Go(e.takeover.logTakeovers)
	return e, nil
}

const maxTakeovers = 32

// nonce returns n random bytes in hexadecimal digits.
func nonce(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // It never fails.
	return hex.EncodeToString(b)
}

func (e *Engine) countRuns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

// Health returns why executions do not continue, nil if they do.
func (e *Engine) Health() error { return e.failing.health() }

// Close stops all executions where they are. Other nodes may take them over.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop()
	e.work.Wait()
	e.metrics.unregister()
	return nil
}

var errClosed = errors.New("the engine is closed")

// spawn runs f in a goroutine that Close waits for. It reports false when the
// engine is closed.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.work.Go(f)
	}
	return !e.closed
}

// admit adds an execution. It reports false if the execution is on this node already. If there are
// as many as the limit, an execution that another one runs is admitted as long as few of its depth
// are there: its parent waits for it, and would otherwise wait for ever for its own end.
func (e *Engine) admit(r *executor, limit int) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return false, errClosed
	case e.runs[r.id] != nil:
		return false, nil
	case limit > 0 && len(e.runs) >= limit && (r.depth == 0 || e.children[r.depth] >= max(1, limit/maxDepth)):
		return false, errFull
	}
	e.runs[r.id] = r
	r.admitted = r.depth
	e.children[r.depth]++
	return true, nil
}

var errFull = errors.New("too many executions")

// forget removes an execution that has left this node.
func (e *Engine) forget(r *executor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[r.id] == r {
		delete(e.runs, r.id)
		e.children[r.admitted]--
	}
}

func (e *Engine) running(id ID) *executor {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

func (h *history) key(id ID) string { return h.tenant + "/" + string(id) }

// now returns the current time in the form that records have.
func now() time.Time { return time.Now().UTC().Round(0) }
