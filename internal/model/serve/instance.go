package serve

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/queue"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// An instance is one content of a model on this node: its files, its worker and its queue. A worker
// that ends by itself is restarted at the next request.
type instance struct {
	server *Server
	spec   repository.Version
	number atomic.Int64 // of the last version with this content
	key    contentKey
	dir    string

	ready chan struct{} // closed when loading has ended
	err   error         // error of loading; set before ready is closed

	mu      sync.Mutex
	worker  *worker.Worker
	queue   *queue.Queue
	info    engine.Info
	gate    *textGate
	text    *TextLoad     // its last measurement; nil for a model for tensors
	users   int           // requests in progress
	used    time.Time     // time of the last use
	keep    time.Duration // replaces the configuration's idle, 0 for none
	began   time.Time
	loadFor time.Duration
	crashes int
	crashed time.Time     // time of the last crash
	again   chan struct{} // closed when a restart has ended; nil if there is none
	ended   atomic.Bool
	// life ends when the instance has been drained: a restart of its worker ends then.
	life context.Context //nolint:containedctx // of the workers
	end  context.CancelFunc

	bypasses bypasses
}

// DefaultMaxBatch is the most rows of a batch of a model with a batch dimension.
const DefaultMaxBatch = 32

// load fetches the files, starts the worker, and warms up each batch size. It verifies the files
// meanwhile.
func (i *instance) load(ctx context.Context) {
	i.began = time.Now()
	i.err = i.fetch(ctx)
	if i.err == nil {
		i.err = i.startVerified(ctx)
	}
	if i.err != nil {
		i.err = outboard.Errorf(outboard.KindOf(i.err), "load "+i.name(), "%w", i.err)
		if i.ended.Load() {
			i.server.log.Info("a model is no longer needed before it is loaded", "model", i.spec.Name, "version", i.version())
		} else {
			i.server.log.Error("a model was not loaded", "model", i.spec.Name, "version", i.version(), "error", i.err)
		}
		i.end()
		i.removeFiles()
		return
	}
	i.loadFor = time.Since(i.began)
	i.server.log.Info("a model is loaded", "model", i.spec.Name, "version", i.version(), "took", i.loadFor.Round(time.Millisecond), "engine", i.spec.Engine)
}

// version returns the number of the last version with the content.
func (i *instance) version() int { return int(i.number.Load()) }

func (i *instance) name() string { return fmt.Sprintf("%s, version %d", i.spec.Name, i.version()) }

// fetch links the files of the model into its folder.
func (i *instance) fetch(ctx context.Context) error {
	files := filepath.Join(i.dir, "files")
	for _, dir := range []string{files, filepath.Join(i.dir, "worker")} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the worker is another user; i.dir is below a private folder
			return err
		}
	}
	if err := checkSpace(i); err != nil {
		return err
	}
	for name, f := range i.spec.Files {
		if err := i.server.opts.Artifacts.Ensure(ctx, f.Digest); err != nil {
			return err
		}
		if err := i.server.opts.Artifacts.Link(f.Digest, filepath.Join(files, name)); err != nil {
			return err
		}
	}
	return nil
}

func (i *instance) removeFiles() {
	if err := os.RemoveAll(i.dir); err != nil {
		i.server.log.Warn("the files of a model are not removed", "model", i.spec.Name, "error", err)
	}
}

// verify reads all files of the model.
func (i *instance) verify(ctx context.Context) error {
	for _, f := range i.spec.Files {
		if err := i.server.opts.Artifacts.Verify(ctx, f.Digest); err != nil {
			return err
		}
	}
	return nil
}

// startVerified starts a worker while the files are verified. The error of a corrupt file precedes what
// the engine says of it.
func (i *instance) startVerified(ctx context.Context) error {
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	verified := make(chan error, 1)
	go func() {
		err := i.verify(ctx)
		if err != nil {
			cancel()
		}
		verified <- err
	}()
	w, err := i.start(starting)
	if corrupt := <-verified; corrupt != nil {
		if err == nil {
			_ = w.Close()
		}
		return corrupt
	}
	if err == nil {
		go i.watch(w)
	}
	return err
}

// start starts a worker and warms it up.
func (i *instance) start(ctx context.Context) (*worker.Worker, error) {
	s, c := i.server, &i.spec.Config
	embedded, err := libraries(s, &i.spec)
	if err != nil {
		return nil, err
	}
	files := filepath.Join(i.dir, "files")
	opts := worker.Options{
		Launch: launcher(s, i),
		Engine: i.spec.Engine, Source: engine.Source{Path: filepath.Join(files, i.spec.Main), Folder: files},
		Options: engine.Options{
			Threads: c.Threads, Memory: int64(c.Memory), Device: c.Device, Library: c.Library, Server: c.Server, Context: c.Context, Sequences: c.Sequences,
		},
		Libraries: embedded, Log: s.log,
	}
	if s.opts.Confine != nil && c.Server == "" {
		var readable []string
		if c.Library != "" {
			readable = append(readable, filepath.Dir(c.Library))
		}
		opts.Confine = s.opts.Confine(filepath.Join(i.dir, "worker"), files, readable)
	}
	w, err := worker.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	i.worker, i.info, i.used = w, w.Info(), time.Now()
	i.queue = queue.New(i.queueOptions(), i.execute)
	if w.Text() {
		i.gate = newTextGate(c, i.info.Sequences)
	}
	i.mu.Unlock()
	if err := i.warm(ctx); err != nil {
		_ = w.Close()
		return nil, outboard.Errorf(outboard.Invalid, "warm up", "%w", err)
	}
	if err := i.checkPairs(ctx, w); err != nil {
		_ = w.Close()
		return nil, outboard.Errorf(outboard.Invalid, "compare with recorded pairs", "%w", err)
	}
	return w, nil
}

// launcher returns the function that starts the worker of an instance.
func launcher(s *Server, i *instance) helper.Launcher {
	launch := s.opts.Launch
	if i.spec.Config.Server != "" {
		launch = s.opts.LaunchServer
	}
	return launch(processName(s, i), int64(i.spec.Config.Memory))
}

// processName returns a name that no other process of this node has had: its control group is
// killed and removed with the process, possibly while the model is being loaded again.
func processName(s *Server, i *instance) string {
	return fmt.Sprintf("%s-%d-%d", i.spec.Name, i.version(), s.started.Add(1))
}

// libraries returns the embedded libraries for a version, none if its configuration names another
// library.
func libraries(s *Server, v *repository.Version) ([]*os.File, error) {
	if v.Config.Library != "" || s.opts.Libraries == nil {
		return nil, nil
	}
	return s.opts.Libraries(v.Engine)
}

func (i *instance) queueOptions() queue.Options {
	c := &i.spec.Config
	most := c.Batching.Max
	if !i.info.BatchDimension {
		most = 1
	} else if most == 0 {
		most = DefaultMaxBatch
	}
	if i.info.MaxBatch > 0 {
		most = min(most, i.info.MaxBatch)
	}
	return queue.Options{
		Size: c.Queue.Size, Instances: cmp.Or(c.Instances, i.info.Calls, 1), MaxBatch: most, Delay: time.Duration(c.Batching.Delay),
		Preferred: c.Batching.Preferred, LatencyGoal: time.Duration(c.Batching.Goal), Pad: c.Batching.Pad,
	}
}

// execute implements queue.Executor.
func (i *instance) execute(ctx context.Context, sequence model.Sequence, inputs []queue.Input, outputs []string) ([]model.Tensor, queue.Copies, error) {
	i.mu.Lock()
	w := i.worker
	i.mu.Unlock()
	list := make([]worker.Input, len(inputs))
	for n := range inputs {
		list[n] = worker.Input(inputs[n])
	}
	results, copies, err := w.InferParts(ctx, sequence, list, outputs)
	return results, queue.Copies(copies), err
}

// measureText updates the load of a model for text.
func (i *instance) measureText() {
	i.mu.Lock()
	w, info, gate := i.worker, i.info, i.gate
	i.mu.Unlock()
	if !w.Text() || isDone(w.Done()) {
		return
	}
	stats := w.Stats()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.text = newTextLoad(&info, &stats)
	gate.observe(i.text)
}

// watch waits for the end of the worker, and logs and counts it unless the instance was unloaded.
func (i *instance) watch(w *worker.Worker) {
	began := time.Now()
	<-w.Done()
	if i.ended.Load() {
		return
	}
	i.server.log.Error("a model's process ended", "model", i.spec.Name, "version", i.version(), "error", w.Err())
	i.server.metrics.crashes.WithLabelValues(i.spec.Name).Inc()
	i.countCrash(time.Since(began))
	announce(i.server) // requests go to nodes on which the model runs
	_ = w.Close()
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// infer checks a request and executes it.
func (i *instance) infer(ctx context.Context, r *Request) ([]model.Tensor, queue.Times, error) {
	if err := i.ensureRunning(ctx); err != nil {
		return nil, queue.Times{}, err
	}
	i.mu.Lock()
	w, q, info := i.worker, i.queue, i.info
	i.mu.Unlock()
	if !w.Tensors() {
		return nil, queue.Times{}, outboard.Errorf(outboard.Invalid, "infer", "the model %s is for text: use the OpenAI, Ollama or generate interface", i.spec.Name)
	}
	outputs := distinct(r.Outputs)
	rows, err := info.Check(r.Inputs, outputs, i.spec.Config.NaN == "refuse")
	if err != nil {
		return nil, queue.Times{}, err
	}
	request := &queue.Request{Inputs: r.Inputs, Outputs: outputs, Rows: rows, Client: r.Sequence.Client, Priority: r.Priority, Alone: r.Alone}
	if info.Stateful {
		request.Sequence = r.engineSequence
	}
	return q.Do(ctx, request)
}

// distinct returns names without repetitions, in the order of their first occurrence: a request that
// names an output a thousand times gets it once.
func distinct(names []string) []string {
	seen := make(map[string]bool, len(names))
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}

// acquire counts a request that is about to use the instance.
func (i *instance) acquire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.users++
	i.used = time.Now()
}

// isAlone reports whether at most one request uses the instance.
func (i *instance) isAlone() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.users <= 1
}

func (i *instance) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.users--
	i.used = time.Now()
}

// unload drains the instance for at most grace, and ends its worker. Loading that has not ended is
// cancelled.
func (i *instance) unload(ctx context.Context, grace time.Duration) {
	if i.ended.Swap(true) {
		return
	}
	if !isDone(i.ready) {
		i.end()
	}
	<-i.ready
	if i.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	i.bypasses.endCurrent(ctx)
	for i.inUse() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(drainInterval):
		}
	}
	i.endRestarts()
	i.mu.Lock()
	w, q := i.worker, i.queue
	i.mu.Unlock()
	_ = q.Close(ctx)
	_ = w.Close()
	i.removeFiles()
	i.server.log.Info("a model is unloaded", "model", i.spec.Name, "version", i.version())
}

// drainInterval is the interval at which a drain checks for requests in progress.
const drainInterval = 10 * time.Millisecond

func (i *instance) inUse() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.users > 0
}

// warm executes each batch size that will be used once, with zeros: engines allocate and compile at
// the first call of a shape. Other variable dimensions are set to 1.
func (i *instance) warm(ctx context.Context) error {
	if !i.worker.Tensors() {
		return nil
	}
	for _, rows := range i.warmSizes() {
		inputs, total := make([]worker.Input, len(i.info.Inputs)), 0
		for n, sig := range i.info.Inputs {
			shape := slices.Clone(sig.Shape)
			for d := range shape {
				if shape[d] < 0 {
					shape[d] = 1
				}
			}
			if i.info.BatchDimension {
				shape[0] = int64(rows)
			}
			elements, ok := model.Elements(shape)
			if !ok || elements > maxWarm {
				return nil
			}
			size := elements * sig.Type.Size()
			if sig.Type == model.Bytes {
				size = 4 * elements
			}
			if total += size; total > maxWarmBytes {
				return nil
			}
			inputs[n] = worker.Input{Name: sig.Name, Type: sig.Type, Shape: shape, Parts: [][]byte{make([]byte, size)}}
		}
		_, _, err := i.worker.InferParts(ctx, model.Sequence{}, inputs, nil)
		if outboard.KindOf(err) == outboard.Unreachable || ctx.Err() != nil {
			return err // it crashed: zeros are valid inputs
		}
	}
	return nil
}

// Bounds of the inputs for warming up, whose shapes a model's file may declare: the elements of one,
// and the bytes of all.
const (
	maxWarm      = 1 << 28
	maxWarmBytes = 1 << 30
)

func (i *instance) warmSizes() []int {
	sizes := []int{1}
	most := i.queueOptions().MaxBatch
	for n := 2; n < most; n *= 2 {
		sizes = append(sizes, n)
	}
	if most > 1 {
		sizes = append(sizes, most)
	}
	for _, n := range i.spec.Config.Batching.Preferred {
		if n <= most {
			sizes = append(sizes, n)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}
