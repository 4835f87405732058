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
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// A Gate is asked before a command is given to the device. Its methods are
// called by the dispatcher only.
type Gate interface {
	// Submit waits until the session may use the device.
	Submit()
	// Rest says that the dispatcher has nothing more to do for now.
	Rest()
}

// A Ring is one end of a ring.
type Ring interface {
	session.Source
	session.Sink
	Area() int
}

// Options of a Worker.
type Options struct {
	// Driver is the driver's functions, as Functions names them.
	Driver *driver.Table
	// Callbacks are the process's; nil for a driver that calls nobody back.
	Callbacks *driver.Callbacks
	Ring      Ring
	// Device is its index in the order of Probe, DeviceName what it should be called.
	Device     int
	DeviceName string
	// Memory is what the session may allocate; 0: all that the device has.
	Memory outboard.Bytes
	// Host is what the session may hold of this process's memory: transfers on
	// their way, objects, commands that are not done. 0: as much as of the
	// device's, at most a quarter of the machine's, and a little.
	Host outboard.Bytes
	// IncludeDir is where header files of builds go, and stay.
	IncludeDir string
	// Output is what the driver writes to its standard output; nil: nothing.
	Output *os.File
	// Gate shares the device; nil: the session has it for itself.
	Gate Gate
	// Log keeps what is needed to rebuild the session; nil: nothing is kept.
	Log *session.Log
}

// Library is the loader that finds the system's drivers.
const Library = "libOpenCL.so.1"

// Functions are the names of the driver's functions, in the order in which
// Options.Driver has to have them.
func Functions() []string { return functionNames }

// A Worker executes one session.
type Worker struct {
	opts Options
	drv  *driver.Table
	in   *session.Reader
	out  *session.Writer

	// The dispatcher's own.
	objects    *session.Table
	frame      *driver.Frame
	call       call
	queues     map[uint64]*queue
	unflushed  []*queue
	contexts   map[uint64]*contextState
	locals     map[uint64]*locals // of kernels that have arguments in local memory
	programs   map[uint64]*programState
	images     map[uint64]uint64        // element size of images
	sizes      map[uint64]uint64        // of memory objects whose end the driver does not tell
	unresolved map[uint64]bool          // user events that the client has not set yet
	searched   time.Time                // when pending commands were last searched for memory
	making     map[uint64]chan struct{} // objects that are made beside the dispatcher

	platform, device uintptr
	localMemory      uint64 // of a work group
	mipmaps          bool   // images may have levels
	unified          bool   // its memory is the host's
	clock            clock
	memory           memory
	host             budget
	staging          staging
	late             late
	pending          pendings
	output           output
	frames           framePool

	// waits are the goroutines that wait for the driver. A driver may never
	// return, so the session ends without them, and their process after it.
	waits sync.WaitGroup
	slots chan struct{} // full when too many of them wait for the driver
	// complaints are what the driver says of contexts.
	complaints chan complaint
	broken     atomic.Pointer[error]
	calls      atomic.Uint64
	awaits     atomic.Bool // the dispatcher waits for the device
	gated      atomic.Bool // there are user events that the client has not set yet
}

// New finds the device and makes a worker for it. It sends nothing yet.
func New(opts Options) (*Worker, error) {
	if opts.Callbacks == nil {
		opts.Callbacks = &driver.Callbacks{}
	}
	w := &Worker{
		opts: opts, drv: opts.Driver,
		queues: make(map[uint64]*queue), contexts: make(map[uint64]*contextState),
		programs: make(map[uint64]*programState), images: make(map[uint64]uint64), sizes: make(map[uint64]uint64), unresolved: make(map[uint64]bool), making: make(map[uint64]chan struct{}), locals: make(map[uint64]*locals),
	}
	var err error
	if w.frame, err = driver.NewFrame(); err != nil {
		return nil, err
	}
	if w.in, err = session.NewReader(opts.Ring, opts.Ring.Area()); err != nil {
		return nil, err
	}
	w.out = session.NewWriter(opts.Ring, opts.Ring.Area())
	w.staging.host = &w.host
	w.slots = make(chan struct{}, mostWaits)
	w.complaints = make(chan complaint, mostComplaints)
	if err := w.pending.init(); err != nil {
		return nil, err
	}
	w.output.init(opts.Output)
	if err := w.findDevice(); err != nil {
		return nil, err
	}
	return w, nil
}

// The ids that the description gives to the two objects that are always there.
const (
	platformID = 1
	deviceID   = 2
)

func (w *Worker) findDevice() error {
	found, err := list(w.drv)
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
	w.platform, w.device = d.platform, d.device
	w.unified = d.info.Type == outboard.CPU
	w.drv = functionsOf(w.drv, w.platform, w.frame)
	w.memory.init(w.opts.Memory, d.info.Memory)
	if w.opts.Host == 0 {
		w.opts.Host = hostLimit(w.memory.limit)
	}
	w.host.limit = int64(w.opts.Host)
	// Even what could not be made needs a place in the table.
	w.objects = session.NewTable(int(max(4096, 2*w.host.limit/objectCost)))
	w.clock.init(w)
	if status, value := ask(w.drv, w.frame, fnClGetDeviceInfo, w.device, clDeviceLocalMemSize); status == clSuccess {
		w.localMemory = word(value)
	}
	status, value := ask(w.drv, w.frame, fnClGetDeviceInfo, w.device, clDeviceExtensions)
	w.mipmaps = status == clSuccess && slices.Contains(strings.Fields(cString(value)), "cl_khr_mipmap_image")
	if err := w.objects.Add(platformID, session.Entry{Kind: kindPlatform, Handle: d.platform}); err != nil {
		return err
	}
	return w.objects.Add(deviceID, session.Entry{Kind: kindDevice, Handle: d.device})
}

// Run sends the snapshot and then executes what comes until the ring is closed,
// which gives nil, or something breaks. The goroutine stays on one thread.
func (w *Worker) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	helpers.Go(func() { w.completer(ctx) })
	helpers.Go(func() { w.watchOutput(ctx) })
	helpers.Go(func() { w.complain(ctx) })
	if err := w.sendSnapshot(); err != nil {
		return err
	}
	for {
		err := w.step()
		if p := w.broken.Load(); p != nil && err == nil {
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
	if w.in.Idle() {
		w.flush()
		if w.opts.Gate != nil {
			w.opts.Gate.Rest()
		}
	}
	h, body, err := w.in.Next()
	if err != nil {
		return err
	}
	w.calls.Add(1)
	w.learn()
	m := session.Message{Header: h, Body: body}
	if w.opts.Log != nil {
		w.record(&m)
	}
	return w.dispatch(&m)
}

// Working reports whether the device works for the client, as far as that is known
// without asking the driver: what depends on the client may be pending for ever. Any
// goroutine may ask.
func (w *Worker) Working() bool {
	return w.awaits.Load() || w.pending.count.Load() > 0 && !w.gated.Load()
}

// untilDone calls the driver for something that returns when the device has done its work.
func (w *Worker) untilDone(fn int, args ...uintptr) int32 {
	w.awaits.Store(true)
	defer w.awaits.Store(false)
	return int32(w.drv.Call(fn, args...))
}

// Stats are what the session has done so far; any goroutine may ask.
func (w *Worker) Stats() control.Stats {
	in, out := w.in.Bytes(), w.out.Bytes()
	return control.Stats{Memory: outboard.Bytes(w.memory.inUse()), Calls: w.calls.Load(), BytesIn: in, BytesOut: out}
}

func (w *Worker) malformed(m *session.Message, err error) error {
	return outboard.Errorf(outboard.Protocol, fmt.Sprintf("message %d, op %#x", m.Serial, m.Op), "%w", err)
}

func (w *Worker) unknown(m *session.Message) error {
	return outboard.Errorf(outboard.Protocol, fmt.Sprintf("message %d", m.Serial), "no op has the number %#x", m.Op)
}

// fault ends the session from a goroutine that is not the dispatcher.
func (w *Worker) fault(err error) {
	if err != nil {
		w.broken.CompareAndSwap(nil, &err)
	}
}

// alone says that the dispatcher may block in the driver on behalf of m.
func alone(m *session.Message) bool { return m.Flags&session.Alone != 0 }

// A ticket is what remains of a call for which somebody waits, once the
// dispatcher has gone on.
type ticket struct {
	op   uint16
	call uint32
}

func (m *call) ticket() ticket { return ticket{op: m.m.Op, call: m.m.Call} }

func (w *Worker) answer(t ticket, status int32, body []byte, bulk ...[]byte) error {
	return w.out.Send(t.header(status), body, bulk...)
}

func (t ticket) header(status int32) session.Header {
	return session.Header{Op: t.op, Flags: session.IsReply, Call: t.call, Status: status}
}

// reply answers a call, or reports its failure when nobody waits.
func (w *Worker) reply(c *call, status int32, body []byte) error {
	if c.broken != nil {
		return w.malformed(c.m, c.broken)
	}
	if c.m.Flags&session.WantReply == 0 {
		return w.finish(c, status)
	}
	return w.answer(c.ticket(), status, body)
}

// finish ends a call that returns nothing but its status.
func (w *Worker) finish(c *call, status int32) error {
	switch {
	case c.broken != nil:
		return w.malformed(c.m, c.broken)
	case c.m.Flags&session.WantReply != 0:
		return w.answer(c.ticket(), status, nil)
	case status != clSuccess:
		return w.fail(c, status)
	}
	return nil
}

// fail reports that an early call failed. An event that the call should have
// made exists all the same and has failed: what waits for it fails as well.
func (w *Worker) fail(c *call, status int32) error {
	n := argsFailed{Serial: c.m.Serial, Op: uint32(c.m.Op), Status: status, Event: c.event, Object: c.object}
	if c.queue != nil {
		n.Queue = c.queue.id
	}
	if c.event != 0 {
		if err := w.failedEvent(c); err != nil {
			return err
		}
	}
	return w.notify(opFailed, n.encode(nil))
}

func (w *Worker) notify(op uint16, body []byte, bulk ...[]byte) error {
	return w.out.Send(session.Header{Op: op}, body, bulk...)
}

// synchronised sends what has to come before a reply that says that commands
// are done: their output, their data, their events.
func (w *Worker) synchronised() error {
	if err := w.drainOutput(); err != nil {
		return err
	}
	return w.settle()
}
