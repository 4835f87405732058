package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/opencl"
	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/shm"
)

// logLimit bounds the session's log, which is not part of its budget.
const logLimit = 32 << 20

// statsEvery is how often a worker reports its totals, if they have changed.
const statsEvery = time.Second

// Descriptors that a worker inherits: its ends of the session's ring and of the control connection,
// and the file for recipes.
const (
	ringDescriptor    = 3
	controlDescriptor = 4
	recipesDescriptor = 5
)

// Main is the main function of a worker, which inherits its ends of the session's ring and of its
// control connection as descriptors 3 and 4. It returns when the session has ended, nil if its
// client ended it.
//
// It runs twice. The first time it reads its configuration, enters the sandbox and executes the
// program again, so that the sandbox covers the whole process; the second time it executes the
// session.
//
// If the configuration says so, the process compiles recipes instead, which it inherits in place of
// the ring.
func Main(ctx context.Context) error {
	if os.Getenv(stepVariable) != "" {
		// This process inherits no descriptors: 3 and 4 are those of the Go runtime's poller, which
		// the garbage collector would close with an os.File of that number.
		return runStep(os.Stdin)
	}
	ring, socket := os.NewFile(ringDescriptor, "ring"), os.NewFile(controlDescriptor, "control")
	cfg, isolation, isolated, err := inheritedConfig()
	if err != nil {
		return err
	}
	if !isolated {
		if cfg, err = control.ReadConfig(socket); err != nil {
			return err
		}
		inherit := []*os.File{ring, socket}
		if cfg.Recipes {
			inherit = append(inherit, os.NewFile(recipesDescriptor, "recipes"))
		}
		err = isolateAndRestart(cfg, inherit...)
		if conn, connErr := control.FromFile(socket); connErr == nil {
			conn.Final(err)
		}
		return err
	}
	return serve(ctx, cfg, isolation, ring, socket)
}

// errNodeGone is the error of a session whose node has ended.
var errNodeGone = &outboard.Error{Op: "session", Kind: outboard.SessionLost, Err: errors.New("the node of the device ended")}

func serve(ctx context.Context, cfg control.Config, isolation control.Isolation, ringFile, socket *os.File) error {
	// When the driver crashes, a stack trace of Go code does not explain it.
	debug.SetTraceback("none")
	conn, err := control.FromFile(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer conn.Close()
	defer cancel() // first, so that the reader can tell that this process closed the connection
	if err := conn.Send(control.Message{Type: control.TypeIsolation, Isolation: &isolation}); err != nil {
		return err
	}
	if cfg.Inspect {
		conn.Final(nil)
		return nil
	}
	if cfg.Compile {
		err := compile(ctx, cfg, ringFile)
		conn.Final(err)
		return err
	}
	ring, err := shm.Open(ringFile, shm.Worker)
	if err != nil {
		conn.Final(err)
		return err
	}
	err = execute(ctx, cfg, ring, conn)
	_ = ring.Fail(err) // closing never fails
	conn.Final(err)
	return err
}

func execute(ctx context.Context, cfg control.Config, ring *shm.Ring, conn *control.Conn) error {
	stdout, err := captureOutput()
	if err != nil {
		return err
	}
	if err := sandbox.RefuseWatches(cfg.Sandbox.Calls); err != nil {
		return err
	}
	table, err := load(cfg.API)
	if err != nil {
		return err
	}
	turns := newTurnGate(conn)
	quota := &nodeQuota{ctx: ctx, conn: conn, answers: make(chan uint64, 1)}
	opts := opencl.Options{
		Driver: table, Callbacks: driver.NewCallbacks(), Ring: ring,
		Device: cfg.Device, DeviceName: cfg.DeviceName, Memory: cfg.Memory, Host: cfg.Host, IncludeDir: filepath.Join(cfg.CacheDir, "include"),
		Output: stdout, Gate: turns, Log: session.NewLog(logLimit),
	}
	if cfg.Recipes {
		opts.Recipes, opts.KnownRecipes = os.NewFile(recipesDescriptor, "recipes"), knownRecipes(cfg.CacheDir)
	}
	if cfg.Quota != nil {
		opts.Quota, opts.InitialQuota = quota, *cfg.Quota
	}
	w, err := opencl.New(opts)
	if err != nil {
		return err
	}
	turns.worker = w
	go (&controlReader{conn: conn, ring: ring, turns: turns, quota: quota, worker: w}).run(ctx)
	go reportStats(ctx, conn, w)
	stop := context.AfterFunc(ctx, func() { _ = ring.Fail(ctx.Err()) })
	defer stop()
	if err := conn.Send(control.Message{Type: control.TypeReady}); err != nil {
		return err
	}
	return w.Run(ctx)
}

// load loads the driver of an API.
func load(api outboard.API) (*driver.Table, error) {
	if api != outboard.OpenCL {
		return nil, outboard.Errorf(outboard.Invalid, "worker", "no API is called %q; known: %s", api, outboard.OpenCL)
	}
	if err := driver.Clean(); err != nil {
		return nil, err
	}
	lib, err := driver.Open(opencl.Library)
	if err != nil {
		return nil, err
	}
	return lib.Bind(opencl.Functions()), nil
}

// Probe lists the devices of every driver of this machine. Drivers crash, hang
// and keep threads: call it in a process that does nothing else.
func Probe(context.Context) ([]outboard.Device, error) {
	table, err := load(outboard.OpenCL)
	if err != nil {
		return nil, err
	}
	return opencl.Probe(table)
}

// controlReader receives and executes the node's messages.
type controlReader struct {
	conn   *control.Conn
	ring   *shm.Ring
	turns  *turnGate
	quota  *nodeQuota
	worker *opencl.Worker
}

// run reads until the connection ends, which ends the worker's process.
func (r *controlReader) run(ctx context.Context) {
	for {
		m, err := r.conn.Receive()
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			// Only the node's end closes the connection, and the driver may never return.
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "outboard worker:", err)
			}
			_ = r.ring.Fail(errNodeGone)
			os.Exit(1) //nolint:forbidigo // the driver may hold every thread
		}
		r.execute(m)
	}
}

func (r *controlReader) execute(m control.Message) {
	switch m.Type {
	case control.TypeContended:
		r.turns.setContended(m.On, m.Background)
	case control.TypeGrant:
		r.turns.grant(m.Quantum, m.Yield)
	case control.TypeQuota:
		r.worker.GrantMemory(uint64(m.Bytes))
		r.quota.deliver(uint64(m.Bytes))
	case control.TypeStderr:
		r.worker.ReportDiagnostic(m.Text)
	case control.TypeReclaim:
		// Also if it is nothing: the node waits for it.
		_ = r.conn.Send(control.Message{Type: control.TypeRelease, Bytes: outboard.Bytes(r.worker.ReclaimMemory())})
	default: // a newer node may send other messages
	}
}

func reportStats(ctx context.Context, conn *control.Conn, w *opencl.Worker) {
	var last control.Stats
	ticker := time.NewTicker(statsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s := w.Stats(); s != last {
			last = s
			if conn.Send(control.Message{Type: control.TypeStats, Stats: &s}) != nil {
				return
			}
		}
	}
}

// captureOutput makes the process's standard output a pipe and returns its reading end: kernels'
// output is sent to the client.
func captureOutput() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("capture output: %w", err)
	}
	if err := unix.Dup2(int(w.Fd()), 1); err != nil {
		return nil, fmt.Errorf("capture output: %w", err)
	}
	return r, w.Close()
}

// ExitReason describes the end of a worker that sent no final message.
func ExitReason(state *os.ProcessState) string {
	status, ok := state.Sys().(interface {
		Signaled() bool
		ExitStatus() int
	})
	switch {
	case ok && status.Signaled():
		return "the driver or a kernel crashed the session's worker (" + state.String() + ")"
	case ok && status.ExitStatus() == crashStatus:
		return "the driver or a kernel crashed the session's worker"
	}
	return "the session's worker ended: " + state.String()
}

// crashStatus is the exit status of Go's runtime after a signal that it can't handle.
const crashStatus = 2
