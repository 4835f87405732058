package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/shm"
)

// Options configure a Worker.
type Options struct {
	// Launch starts the process; see Spawner.Launcher. Tests run it in a goroutine.
	Launch helper.Launcher
	// Confine makes the process isolate itself with these settings; nil leaves it unconfined.
	Confine *Confinement
	// Engine names the engine that loads Source with Options.
	Engine  string
	Source  engine.Source
	Options engine.Options
	// Libraries are files with the engine's libraries that are passed to the process, named as in
	// the engine. The caller keeps their ownership.
	Libraries []*os.File
	// LoadLimit bounds the time of loading; 0 means ten minutes.
	LoadLimit time.Duration
	// PingInterval is how often the process is pinged. It is killed if it does not respond for
	// PingLimit. Both are 10 s by default.
	PingInterval, PingLimit time.Duration
	Log                     *slog.Logger
}

// A Worker is the node's end of a process with a loaded model. It implements engine.TensorModel and
// engine.TextModel; Tensors and Text report which of them the model is. Any number of goroutines
// may use it.
type Worker struct {
	opts    Options
	process helper.Process
	conn    *ipc.Conn
	loaded  loadReply

	tensors  *tensorClient // nil for a model without tensors
	bypasses openBypasses
	texts    textClient

	serving    sync.WaitGroup
	done       chan struct{} // closed when the process has ended
	exitReason error         // set before done is closed
	crash      error         // the error of calls that it was executing; set with exitReason
	reason     atomic.Pointer[error]
	closing    atomic.Bool
	released   chan struct{} // closed when the memory is unmapped
}

var (
	_ engine.TensorModel = (*Worker)(nil)
	_ engine.TextModel   = (*Worker)(nil)
)

// Start starts a process and makes it load a model. ctx bounds both; the worker lives until Close.
func Start(ctx context.Context, opts Options) (*Worker, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	conn, far, err := ipc.Pair(ipc.Options{MaxBody: maxMessage})
	if err != nil {
		return nil, err
	}
	p, err := opts.Launch("", far)
	_ = far.Close()
	if err != nil {
		return nil, errors.Join(outboard.Errorf(outboard.Unreachable, "start a model's process", "%w", err), conn.Close())
	}
	w := &Worker{opts: opts, process: p, conn: conn, done: make(chan struct{}), released: make(chan struct{})}
	w.texts.init(conn)
	w.serving.Go(func() { conn.Serve(w.handle) })
	go w.wait()
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(opts.LoadLimit, 10*time.Minute),
		outboard.Errorf(outboard.Unreachable, "load", "the model was not loaded within %v", cmp.Or(opts.LoadLimit, 10*time.Minute)))
	defer cancel()
	if err := w.load(ctx); err != nil {
		return nil, errors.Join(w.explain(err), w.Close())
	}
	go w.watch()
	return w, nil
}

// load isolates the process and makes it load the model.
func (w *Worker) load(ctx context.Context) error {
	if w.opts.Confine != nil {
		if err := w.opts.Confine.send(w.conn); err != nil {
			return err
		}
	}
	ring, err := shm.Create(ringArea)
	if err != nil {
		return err
	}
	for _, f := range w.opts.Libraries {
		err = errors.Join(err, w.conn.Send(typeLibrary, libraryMessage{Engine: w.opts.Engine, Name: filepath.Base(f.Name())}, f))
	}
	var answer *ipc.Message
	if err == nil {
		answer, err = w.conn.Call(ctx, typeLoad, loadRequest{Engine: w.opts.Engine, Source: w.opts.Source, Options: w.opts.Options}, ring.File())
	}
	if err == nil {
		err = answer.Decode(&w.loaded)
		answer.Close()
	}
	if err == nil {
		err = w.loaded.Info.Validate()
	}
	if err != nil || !w.loaded.Tensors {
		ring.Unmap()
		return err
	}
	w.tensors = newTensorClient(w, ring)
	return nil
}

// Info implements engine.Model.
func (w *Worker) Info() engine.Info { return w.loaded.Info }

// EngineVersion returns the version of the engine's library.
func (w *Worker) EngineVersion() string { return w.loaded.Version }

// Tensors reports whether the model is a TensorModel.
func (w *Worker) Tensors() bool { return w.loaded.Tensors }

// Text reports whether the model is a TextModel.
func (w *Worker) Text() bool { return w.loaded.Text }

// PID returns the process's number, 0 if the worker runs in no process.
func (w *Worker) PID() int {
	if p, ok := w.process.(interface{ PID() int }); ok {
		return p.PID()
	}
	return 0
}

// Done returns a channel that is closed when the process has ended.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Err returns the reason of the process's end. It must be called only after Done is closed.
func (w *Worker) Err() error { return w.exitReason }

// Kill kills the process; reason becomes the error of its calls.
func (w *Worker) Kill(reason error) {
	w.reason.CompareAndSwap(nil, &reason)
	w.process.Kill()
}

// Close implements engine.Model. It ends calls in progress, and the process, which is killed if it
// does not end by itself.
func (w *Worker) Close() error {
	if !w.closing.Swap(true) {
		_ = w.conn.CloseWrite()
		timer := time.AfterFunc(closeGrace, w.process.Kill)
		defer timer.Stop()
	}
	<-w.released
	return nil
}

// wait waits for the end of the process and fails the calls that wait for it.
func (w *Worker) wait() {
	err := w.process.Wait()
	switch reason := w.reason.Load(); {
	case reason != nil:
		w.exitReason = *reason
	case w.closing.Load():
		w.exitReason = outboard.Errorf(outboard.Unreachable, "", "the model has been unloaded")
	default:
		w.exitReason = outboard.Errorf(outboard.Unreachable, "", "the model's process ended: %w", cmp.Or(err, errSilent))
	}
	w.crash = w.exitReason
	if !w.closing.Load() && !errors.Is(w.exitReason, errHung) {
		w.crash = &engine.Crash{Reason: w.exitReason}
	}
	w.texts.markSuspects()
	close(w.done)
	_ = w.conn.Close()
	w.serving.Wait()
	w.bypasses.end()
	if w.tensors != nil {
		w.tensors.close(w.exitReason)
	}
	close(w.released)
}

var errSilent = errors.New("it gave no reason")

// exitLimit is how long an error of the connection waits for the exit status that explains it.
const exitLimit = time.Second

// explain replaces an error of the connection by the reason of the process's end.
func (w *Worker) explain(err error) error {
	if !errors.Is(err, ipc.ErrClosed) {
		return err
	}
	select {
	case <-w.done:
		return w.exitReason
	case <-time.After(exitLimit):
		return err
	}
}

// explainCall is explain for a request that the process may have been executing.
func (w *Worker) explainCall(err error) error {
	if err = w.explain(err); isClosed(w.done) && errors.Is(err, w.exitReason) {
		return w.crash
	}
	return err
}

// pingDefault is the default of Options.PingInterval and Options.PingLimit.
const pingDefault = 10 * time.Second

// watch kills the process if it does not respond to pings: its calls then fail, and the model can be
// loaded anew. A process that computes for long responds.
func (w *Worker) watch() {
	limit := cmp.Or(w.opts.PingLimit, pingDefault)
	pings := helper.Pings{Kind: typePing, Interval: cmp.Or(w.opts.PingInterval, pingDefault), Limit: limit}
	if helper.Watch(context.Background(), w.conn, pings) {
		w.Kill(outboard.Errorf(outboard.Unreachable, "", "the model's process did not respond for %v, and was killed", limit))
	}
}

// handle handles a message of the process.
func (w *Worker) handle(m *ipc.Message) {
	switch {
	case m.Type == typeTokens:
		w.texts.deliver(m)
	case m.Type == typeGenerated:
		w.texts.end(m)
	case m.Type == typeOutput && w.tensors != nil:
		_ = w.conn.Reply(m, nil, w.tensors.addOutput(m))
	default:
		_ = w.conn.Reply(m, nil, outboard.Errorf(outboard.Protocol, "model", "unknown message %.40q", m.Type))
	}
	m.Close()
}
