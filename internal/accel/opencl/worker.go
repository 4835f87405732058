package opencl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// Gate controls the session's access to a shared device. Only the dispatcher calls its methods.
type Gate interface {
	// Submit waits until the session may use the device.
	Submit()
	// Rest reports that the dispatcher waits for the client.
	Rest()
}

// Ring is one end of a ring.
type Ring interface {
	session.Source
	session.Sink
	Area() int
}

// Options configure a Worker.
type Options struct {
	// Driver contains the driver's functions, in the order of Functions.
	Driver *driver.Table
	// Callbacks are the process's callbacks; nil for a driver without callbacks.
	Callbacks *driver.Callbacks
	Ring      Ring
	// Device is the device's index in the order of Probe, DeviceName the name that it must have.
	Device     int
	DeviceName string
	// Memory bounds the session's allocations; 0: all memory of the device.
	Memory outboard.Bytes
	// Quota is the source of quota beyond InitialQuota, up to Memory; nil: Memory is the session's
	// alone.
	Quota        Quota
	InitialQuota outboard.Bytes
	// Host bounds the memory of this process that the session may use: running transfers, objects,
	// pending commands. 0: as much as of the device's, at most a quarter of the machine's, and a
	// little more.
	Host outboard.Bytes
	// IncludeDir is the folder for the header files of builds, which outlive the session.
	IncludeDir string
	// Output is the reading end of the driver's standard output; nil: nothing is read.
	Output *os.File
	// Gate shares the device; nil: the session has exclusive use of it.
	Gate Gate
	// Recipes receives the recipes that a compile step needs to compile the session's kernels
	// again, except those with keys in KnownRecipes; nil: nothing is recorded.
	Recipes      io.Writer
	KnownRecipes map[string]bool
	// Log records the messages that are needed to rebuild the session; nil: nothing is recorded.
	Log *session.Log
}

// Library is the name of the loader that finds the system's drivers.
const Library = "libOpenCL.so.1"

// Functions returns the names of the driver's functions, in the order that Options.Driver must
// have.
func Functions() []string { return functionNames }

// Worker executes one session: it reads messages from the ring and dispatches each to the part that
// handles it.
type Worker struct {
	opts  Options
	drv   *driver.Table
	calls atomic.Uint64

	// State of the process.
	client *client
	frames *frames
	device *device
	memory *deviceMemory
	budget *budget
	output *output
	// diagnostics are lines for the program's standard error.
	diagnostics diagnostics

	// State of the session, from the bottom up: a part uses those above it. The exceptions are
	// parts that wait for commands that another part tracks.
	objects    *objects
	events     *events
	queues     *queues
	helpers    *helpers
	hostMemory *hostMemory
	caller     *caller
	tracer     *tracer

	// The parts that execute calls.
	contexts     *contexts
	memObjects   *memObjects
	sharedMemory *sharedMemory
	programs     *programs
	kernels      *kernels
	reads        *reads
	writes       *writes
	synchronizer *synchronizer
	releases     *releases
	recorder     *recorder
}

// New finds the device and returns a worker for it. The worker has not sent anything yet.
func New(opts Options) (*Worker, error) {
	if opts.Callbacks == nil {
		opts.Callbacks = &driver.Callbacks{}
	}
	w := &Worker{opts: opts, drv: opts.Driver, memory: &deviceMemory{}, budget: &budget{}}
	w.device = &device{memory: w.memory}
	frame, err := driver.NewFrame()
	if err != nil {
		return nil, err
	}
	w.frames = &frames{current: frame}
	in, err := session.NewReader(opts.Ring, opts.Ring.Area())
	if err != nil {
		return nil, err
	}
	w.client = &client{in: in, out: session.NewWriter(opts.Ring, opts.Ring.Area())}
	if err := w.findDevice(); err != nil {
		return nil, err
	}
	w.output = newOutput(opts.Output, w.client)
	w.diagnostics = diagnostics{client: w.client, lines: make(chan string, maxDiagnostics)}
	if err := w.newState(); err != nil {
		return nil, err
	}
	w.newCalls()
	return w, w.addFixedObjects()
}

// newState creates the parts that hold the session's state.
func (w *Worker) newState() error {
	opts, cl := &w.opts, w.client
	staging := &staging{host: w.budget}
	// The table has an entry for a failed object too.
	w.objects = &objects{
		budget: w.budget, table: session.NewTable(int(max(4096, 2*w.budget.limit/objectCost))),
		creating: make(map[uint64]chan struct{}),
	}
	w.events = &events{
		drv: w.drv, callbacks: opts.Callbacks, client: cl, frames: w.frames, device: w.device, objects: w.objects,
		output: w.output, staging: staging, unresolved: make(map[uint64]bool),
		failed: failedEvents{drv: w.drv, frames: &w.frames.framePool},
	}
	w.queues = &queues{drv: w.drv, frames: w.frames, budget: w.budget, events: w.events, byID: make(map[uint64]*queue)}
	w.helpers = &helpers{events: w.events, queues: w.queues, slots: make(chan struct{}, maxWaits)}
	w.queues.helpers = w.helpers
	w.hostMemory = &hostMemory{client: cl, budget: w.budget, staging: staging, memory: w.memory, events: w.events, queues: w.queues}
	w.tracer = &tracer{drv: w.drv, client: cl, device: w.device, events: w.events}
	w.caller = &caller{
		drv: w.drv, gate: opts.Gate, tracer: w.tracer, client: cl, frames: w.frames, budget: w.budget, device: w.device,
		objects: w.objects, events: w.events, queues: w.queues, hostMemory: w.hostMemory,
	}
	return w.events.pending.init()
}

// newCalls creates the parts that execute calls.
func (w *Worker) newCalls() {
	opts, cl, k := &w.opts, w.client, w.caller
	if opts.Recipes != nil {
		w.recorder = newRecorder(opts.Recipes, opts.KnownRecipes, compilesAtLaunch(w.device.platformName))
	}
	w.contexts = &contexts{
		caller: k, client: cl, frames: w.frames, device: w.device, objects: w.objects, callbacks: opts.Callbacks,
		byID: make(map[uint64]*contextState), errors: make(chan contextError, maxContextErrors),
	}
	w.memObjects = &memObjects{
		drv: w.drv, callbacks: opts.Callbacks, caller: k, client: cl, frames: w.frames, device: w.device, budget: w.budget,
		memory: w.memory, staging: w.hostMemory.staging, hostMemory: w.hostMemory, objects: w.objects, contexts: w.contexts,
		elements: make(map[uint64]uint64), sizes: make(map[uint64]uint64),
	}
	w.sharedMemory = &sharedMemory{
		drv: w.drv, caller: k, device: w.device, contexts: w.contexts, memory: w.memory, events: w.events, queues: w.queues,
		allocations: make(map[uint64]sharedAllocation),
	}
	w.programs = &programs{
		drv: w.drv, caller: k, client: cl, frames: w.frames, device: w.device, budget: w.budget, hostMemory: w.hostMemory,
		objects: w.objects, events: w.events, output: w.output, contexts: w.contexts, helpers: w.helpers,
		includes: &includes{dir: opts.IncludeDir, output: w.output}, byID: make(map[uint64]*programState),
		recorder: w.recorder,
	}
	w.kernels = &kernels{
		drv: w.drv, caller: k, frames: w.frames, device: w.device, locals: make(map[uint64]*locals), recorder: w.recorder,
		sharedMemory: w.sharedMemory,
	}
	mover := &mover{drv: w.drv, frames: w.frames, device: w.device, memObjects: w.memObjects, area: opts.Ring.Area()}
	w.reads = &reads{
		drv: w.drv, caller: k, client: cl, frames: w.frames, budget: w.budget, staging: w.hostMemory.staging, hostMemory: w.hostMemory,
		objects: w.objects, events: w.events, queues: w.queues, output: w.output, helpers: w.helpers, mover: mover,
	}
	w.writes = &writes{
		caller: k, client: cl, staging: w.hostMemory.staging, hostMemory: w.hostMemory, events: w.events, queues: w.queues, mover: mover,
	}
	w.synchronizer = &synchronizer{
		drv: w.drv, caller: k, client: cl, objects: w.objects, events: w.events, queues: w.queues, helpers: w.helpers,
	}
	w.releases = &releases{
		drv: w.drv, budget: w.budget, objects: w.objects, events: w.events, queues: w.queues, sharedMemory: w.sharedMemory,
		forget: map[session.Kind]func(id uint64){
			kindQueue: w.queues.forget, kindContext: w.contexts.forget, kindKernel: w.kernels.forget,
			kindProgram: w.programs.forget, kindMem: w.memObjects.forget,
		},
	}
}

// The ids that the description gives to the two predefined objects.
const (
	platformID = 1
	deviceID   = 2
)

func (w *Worker) findDevice() error {
	found, err := listDevices(w.drv)
	if err != nil {
		return err
	}
	if w.opts.Device < 0 || w.opts.Device >= len(found) {
		return outboard.Errorf(outboard.NoDevice, fmt.Sprintf("device %d", w.opts.Device), "the driver has %d devices", len(found))
	}
	d := found[w.opts.Device]
	if w.opts.DeviceName != "" && d.info.Name != w.opts.DeviceName {
		return outboard.Errorf(outboard.NoDevice, fmt.Sprintf("device %d", w.opts.Device), "it is %q now, and was %q when the node looked", d.info.Name, w.opts.DeviceName)
	}
	w.device.platform, w.device.handle, w.device.platformName = d.platform, d.device, d.info.Platform
	w.device.unified = d.info.Type == outboard.CPU
	w.drv = functionsOf(w.drv, w.device.platform, w.frames.current)
	w.memory.init(w.opts.Memory, d.info.Memory)
	w.memory.source, w.memory.quota = w.opts.Quota, uint64(w.opts.InitialQuota)
	if w.opts.Host == 0 {
		w.opts.Host = hostLimit(w.memory.limit)
	}
	w.budget.limit = int64(w.opts.Host)
	w.device.clock.init(w.drv, w.frames.current, w.device.handle)
	if status, value := query(w.drv, w.frames.current, fnClGetDeviceInfo, w.device.handle, clDeviceLocalMemSize); status == clSuccess {
		w.device.localMemory = firstWord(value)
	}
	w.device.sharesMemory = sharesMemory(w.drv, w.frames.current, w.device.handle)
	status, value := query(w.drv, w.frames.current, fnClGetDeviceInfo, w.device.handle, clDeviceExtensions)
	w.device.mipmaps = status == clSuccess && slices.Contains(strings.Fields(cString(value)), "cl_khr_mipmap_image")
	return nil
}

// addFixedObjects adds the two objects that a session begins with.
func (w *Worker) addFixedObjects() error {
	if err := w.objects.table.Add(platformID, session.Entry{Kind: kindPlatform, Handle: w.device.platform}); err != nil {
		return err
	}
	return w.objects.table.Add(deviceID, session.Entry{Kind: kindDevice, Handle: w.device.handle})
}

// Run sends the snapshot and then executes messages until the ring is closed, for which it returns
// nil, or until an error. The goroutine stays on one thread.
func (w *Worker) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	helpers.Go(func() { w.events.runCompleter(ctx) })
	helpers.Go(func() { w.output.watch(ctx) })
	helpers.Go(func() { w.contexts.forwardErrors(ctx) })
	if err := w.sendSnapshot(); err != nil { // it must be the first message
		return err
	}
	helpers.Go(func() { w.diagnostics.forward(ctx) })
	for {
		err := w.step()
		if p := w.client.broken.Load(); p != nil && err == nil {
			err = *p
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// step executes one message.
func (w *Worker) step() error {
	if w.client.in.Idle() {
		w.queues.flushAll()
		if w.opts.Gate != nil {
			w.opts.Gate.Rest()
		}
		if w.tracer.on {
			if err := w.tracer.rest(); err != nil {
				return err
			}
		}
	}
	h, body, err := w.client.in.Next()
	if err != nil {
		return err
	}
	w.calls.Add(1)
	w.objects.applyUpdates()
	m := session.Message{Header: h, Body: body}
	if w.opts.Log != nil {
		w.record(&m)
	}
	w.recorder.observe(&m)
	if w.tracer.on {
		return w.tracer.step(&m, w.dispatch)
	}
	return w.dispatch(&m)
}

// Working reports whether the device works for the client, as far as that is known without asking
// the driver. Commands that depend on the client don't count: they may be pending for ever. Any
// goroutine may call it.
func (w *Worker) Working() bool {
	return w.queues.waiting.Load() || w.events.pending.count.Load() > 0 && !w.events.gated.Load()
}

// Stats returns the session's totals so far. Any goroutine may call it.
func (w *Worker) Stats() control.Stats {
	in, out := w.client.in.Bytes(), w.client.out.Bytes()
	return control.Stats{Memory: outboard.Bytes(w.memory.inUse()), Calls: w.calls.Load(), BytesIn: in, BytesOut: out}
}

// GrantMemory adds to the session's quota of device memory; ReclaimMemory takes its unused part
// back and returns the number of bytes. Any goroutine may call them.
func (w *Worker) GrantMemory(bytes uint64) { w.memory.grant(bytes) }

// ReclaimMemory is described at GrantMemory.
func (w *Worker) ReclaimMemory() (bytes uint64) { return w.memory.reclaim() }

// Drain waits until the device has executed all submitted commands, unless they depend on the
// client. Only the dispatcher's Gate may call it.
func (w *Worker) Drain() {
	if len(w.events.unresolved) == 0 {
		w.queues.drain()
	}
}

// Busy reports whether the device may be working for the session.
func (w *Worker) Busy() bool {
	for _, q := range w.queues.byID {
		if q.busy {
			return true
		}
	}
	return false
}
