// Package serve runs the models of a node: it loads them into workers, warms up, switches, drains
// and unloads them, and sends each request to the best node of the pool.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/queue"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// Artifacts are the artifacts on this node.
type Artifacts interface {
	// Ensure fetches a file from another node or a registry unless this node has it.
	Ensure(ctx context.Context, digest string) error
	// Link links a file at a path, without verifying it.
	Link(digest, path string) error
	// Verify reads a file. It deletes a corrupt one, whose error is of kind outboard.NotFound.
	Verify(ctx context.Context, digest string) error
	Has(digest string) (bool, error)
}

// Peers are the other nodes of the pool.
type Peers interface {
	// Infer executes a request on a node.
	Infer(ctx context.Context, node outboard.NodeID, r *Request) (*Response, error)
	// Load makes a node load a version of a model.
	Load(ctx context.Context, node outboard.NodeID, name string, version int) error
	// Keep determines how long a model stays loaded on a node, as [Server.KeepHere] does.
	Keep(ctx context.Context, node outboard.NodeID, name string, idle time.Duration) error
	// Text returns a model for text on a node.
	Text(node outboard.NodeID, name string, version int, info engine.Info) engine.TextModel
	// Describe returns the description of a version of a model from a node, which loads it, and its
	// number. With 0 it is the version that serves there at present.
	Describe(ctx context.Context, node outboard.NodeID, name string, version int) (engine.Info, int, error)
	// Reports returns the last reports of the live nodes.
	Reports() []Report
	// Changed returns a channel that is closed when a report changes.
	Changed() <-chan struct{}
	// Publish publishes the report of this node.
	Publish(ctx context.Context, r Report) error
}

// Options configure a Server.
type Options struct {
	Self       outboard.NodeID
	Repository *repository.Repository
	Artifacts  Artifacts
	// CheckSpace returns an error, in whose chain is syscall.ENOSPC, if the artifacts' disk has no
	// space for so many bytes; nil checks nothing.
	CheckSpace func(bytes int64) error
	Peers      Peers
	// Dir is a folder of the node for the files of loaded models, on the file system of the
	// artifacts. Open empties it.
	Dir string
	// Launch returns the function that starts a worker, and Confine the worker's sandbox, nil for
	// none: its arguments are an empty folder, the folder of the model's files, and other readable
	// folders.
	Launch  func(name string, memory int64) helper.Launcher
	Confine func(dir, files string, readable []string) *worker.Confinement
	// Servers are the names of this node's servers for the engine "process", whose workers
	// LaunchServer starts.
	Servers      []string
	LaunchServer func(name string, memory int64) helper.Launcher
	// Libraries returns the embedded libraries of an engine, unpacked; the process owns the files.
	Libraries func(engine string) ([]*os.File, error)
	// ParseTensor parses a nested JSON array as a value of an input or output, for recorded pairs.
	ParseTensor func(text []byte, want *model.Signature) (model.Tensor, error)
	// Tracer records the spans of requests and of their stages; nil records none.
	Tracer  trace.Tracer
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// A Server serves the models of the pool's repository. Any number of goroutines may use it.
type Server struct {
	opts    Options
	log     *slog.Logger
	life    context.Context //nolint:containedctx // of the loaded models
	stop    context.CancelFunc
	serving sync.WaitGroup
	metrics *metrics
	started atomic.Uint64 // processes
	free    atomic.Int64  // memory of the machine, in bytes
	sent    sentPrompts

	sequences sequences

	mu            sync.Mutex
	loaded        map[contentKey]*instance
	routes        map[string]*route // by the name of the model
	canaries      map[string]*canary
	closed        bool
	reportChanged chan struct{}               // has a value when the report of this node has changed
	speeds        map[string]speed            // of contents, also after they were unloaded
	failures      map[contentKey]string       // of the last attempts to load models that failed
	files         map[string]bool             // contents whose artifacts are on this node, as last reported
	infos         map[nodeContent]engine.Info // by the descriptions of other nodes
}

// A contentKey identifies a model and the content of a version: versions with the same content
// share an instance.
type contentKey struct{ name, content string }

// A route holds the instances to which the requests of a model go on this node.
type route struct {
	current  *instance
	previous *instance // for a canary, and while current is being loaded
	canary   int
	requests uint64
}

// Open starts to serve the models.
func Open(ctx context.Context, opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.CheckSpace == nil {
		opts.CheckSpace = func(int64) error { return nil }
	}
	if err := errors.Join(os.RemoveAll(opts.Dir), os.MkdirAll(opts.Dir, 0o700)); err != nil {
		return nil, fmt.Errorf("models' folder: %w", err)
	}
	s := &Server{
		opts: opts, log: opts.Log, loaded: map[contentKey]*instance{}, routes: map[string]*route{}, canaries: map[string]*canary{}, speeds: map[string]speed{}, failures: map[contentKey]string{}, infos: map[nodeContent]engine.Info{},
		reportChanged: make(chan struct{}, 1),
	}
	s.metrics = newMetrics(opts.Metrics, s)
	s.free.Store(availableMemory())
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.serving.Go(s.reconcile)
	s.serving.Go(func() { publish(s) })
	return s, nil
}

// Close unloads all models.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	all := make([]*instance, 0, len(s.loaded))
	for _, i := range s.loaded {
		all = append(all, i)
	}
	s.mu.Unlock()
	s.stop()
	s.serving.Wait()
	var closing sync.WaitGroup
	for _, i := range all {
		closing.Go(func() { i.unload(context.Background(), 0) })
	}
	closing.Wait()
	return nil
}

// A Request is a request for outputs of a model for tensors.
type Request struct {
	// Model is the model's name or an alias. Version is the number of a version, "" for the one in
	// force.
	Model, Version string
	ID             string
	Inputs         []model.Tensor
	// Outputs are the names of the requested outputs, none for all.
	Outputs []string
	// Priority orders the waiting requests of a client (Sequence.Client): higher first.
	Priority int
	// Timeout bounds the time of the request; 0 uses the model's configuration.
	Timeout time.Duration
	// Local keeps the request on this node: another node has forwarded it.
	Local bool
	// Alone keeps the request out of batches: a process has ended while it executed the request, and
	// may do so again.
	Alone bool
	// Sequence names the client also for a request that belongs to no sequence.
	Sequence Sequence

	// engineSequence is Sequence as the engine identifies it, on the node that executes the request.
	engineSequence model.Sequence
}

// A Response contains the outputs of a Request.
type Response struct {
	Model   string
	Version int
	Node    outboard.NodeID
	Outputs []model.Tensor
	Times   queue.Times
}

// defaultTimeout is the deadline of requests that set none.
const defaultTimeout = time.Minute

// Infer executes a request on this or another node.
func (s *Server) Infer(ctx context.Context, r *Request) (*Response, error) {
	v, err := s.version(r.Model, r.Version)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(r.Timeout, time.Duration(v.Config.Queue.Timeout), defaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout(v.Name, limit))
	defer cancel()
	if r.Sequence.ID != "" {
		return inferSequence(ctx, s, r, v)
	}
	if r.Local {
		return s.inferHere(ctx, r, v)
	}
	return inferSomewhere(ctx, s, r, v)
}

// inferSomewhere executes a request on the best node, and on others if that one is lost.
func inferSomewhere(ctx context.Context, s *Server, r *Request, v *repository.Version) (*Response, error) {
	own := *r
	var attempts attempts
	for _, c := range s.candidates(v, r.Version != "") {
		infer := func() (*Response, error) { return s.opts.Peers.Infer(ctx, c.Node, &own) }
		if c.Node == s.opts.Self {
			infer = func() (*Response, error) { return s.inferHere(ctx, &own, v) }
		}
		response, err := infer()
		if err == nil || !isRetriable(ctx, err) {
			return response, err
		}
		own.Alone = own.Alone || engine.IsCrash(err)
		s.metrics.retries.WithLabelValues(v.Name).Inc()
		if attempts.add(err) {
			break
		}
	}
	return nil, cmp.Or(attempts.err(v.Name), errNoNode(v.Name))
}

func errNoNode(name string) error {
	return outboard.Errorf(outboard.Unreachable, "", "no node of the pool can serve the model %s: see `outboard models show %s --why`", name, name)
}

// maxAttempts bounds the number of nodes on which a request is tried. To compute outputs twice is
// safe.
const maxAttempts = 3

// attempts are the failed attempts to execute a request on different nodes.
type attempts struct {
	number, crashes int
	last            error
}

// add adds an attempt, and reports whether it is the last one.
func (a *attempts) add(err error) (last bool) {
	a.number++
	a.last = err
	if engine.IsCrash(err) {
		a.crashes++
	}
	return a.number == maxAttempts || a.crashes == engine.MaxCrashes
}

// err returns the error of the request, nil if there was no attempt.
func (a *attempts) err(name string) error {
	if a.crashes < engine.MaxCrashes {
		return a.last
	}
	return engine.ErrCrashes("infer", name, a.last)
}

func isRetriable(ctx context.Context, err error) bool {
	return outboard.KindOf(err) == outboard.Unreachable && ctx.Err() == nil
}

func errTimeout(name string, limit time.Duration) error {
	return outboard.Errorf(outboard.Exhausted, "infer", "the model %s did not answer within %v", name, limit)
}

// version returns a version of a model by its number, for "" the one in force.
func (s *Server) version(name, number string) (*repository.Version, error) {
	m, err := s.opts.Repository.Get(name)
	if err != nil {
		return nil, err
	}
	if number == "" {
		return m.Current(), nil
	}
	for i := range m.Versions {
		if v := &m.Versions[i]; strconv.Itoa(v.Number) == number {
			return v, nil
		}
	}
	return nil, outboard.Errorf(outboard.NotFound, "", "the model %s has no version %q: the last is %d", name, number, m.Current().Number)
}

// inferHere executes a request on this node, which loads the model if necessary.
func (s *Server) inferHere(ctx context.Context, r *Request, v *repository.Version) (*Response, error) {
	i, err := s.acquire(ctx, v, r.Version != "")
	if err != nil {
		return nil, err
	}
	defer i.release()
	response, err := inferOn(ctx, s, i, r, v)
	if r.Version == "" && outboard.KindOf(err) == outboard.Invalid {
		return inferRefused(ctx, s, i, r, v, err)
	}
	return response, err
}

// inferOn executes a request on an instance that is in use.
func inferOn(ctx context.Context, s *Server, i *instance, r *Request, v *repository.Version) (*Response, error) {
	i.bypasses.observe(r, i.isAlone())
	ctx, span := startSpan(ctx, i)
	outputs, times, err := i.infer(ctx, r)
	span.endInfer(times, err)
	s.metrics.observe(v.Name, i.version(), times, err)
	if r.Version == "" {
		countOutcome(s, v, i.key != keyOf(v), isFault(ctx, err))
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return &Response{Model: v.Name, Version: i.version(), Node: s.opts.Self, Outputs: outputs, Times: times}, nil
}
