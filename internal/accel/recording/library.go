package recording

import (
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/accel/opencl"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// library tracks, in the recording of a local run, the state that the driver library of a leased
// device would have at each call: which arguments a kernel has, which objects have other
// references, which queries it can answer. Calls that it would answer by itself send no message;
// queries that it can't answer do (cmd/libopencl/calls: argument.c, program_info.c, format.c,
// queue.c; objects/object.c).
type library struct {
	references map[uint64]uint32 // by object
	arguments  map[argument]uint64
	formats    map[uint64]bool // by context, access and type of image
	clock      bool            // the offset of the worker's clock is known
}

// argument identifies an argument of a kernel.
type argument struct{ kernel, index uint64 }

const (
	queueProfiling     = 1 << 1  // CL_QUEUE_PROFILING_ENABLE
	queueAwaited       = 1 << 63 // set by the recorder (cmd/libopencl/entry/note.c)
	programBinarySizes = 0x1165  // CL_PROGRAM_BINARY_SIZES
	programBinaries    = 0x1166  // CL_PROGRAM_BINARIES
	statusReply        = 32 + 8  // a reply with one word
	formatsQuery       = 32 + 3*8
	formatsReply       = 32 + 45*8 // of a device with the 44 formats of PoCL
	noticeWords        = 2 * 8     // serial and status of data that no call waits for
)

func newLibrary() *library {
	return &library{references: map[uint64]uint32{}, arguments: map[argument]uint64{}, formats: map[uint64]bool{}}
}

// answer changes the record of a call to the way in which the library would answer it.
func (l *library) answer(f *function, c *rawCall, r *trace.Record) {
	switch {
	case r.Failed && f.answer != "wait" && !awaitsQueue(f, c):
		makeLocal(r) // the library checks the arguments
	case f.name == "clSVMFree":
		if c.object == 0 {
			makeLocal(r)
		}
	case f.name == "clSetKernelArg", f.name == "clSetKernelArgSVMPointer":
		if l.knowsArgument(c, r) {
			makeLocal(r)
		}
	case strings.HasPrefix(f.name, "clRelease"):
		if l.release(f, c) {
			makeLocal(r)
		}
	case strings.HasPrefix(f.name, "clRetain"):
		l.retain(f, c, r)
	case strings.HasPrefix(f.name, "clCreateCommandQueue"):
		l.createQueue(c, r)
	case strings.HasPrefix(f.name, "clCreateImage"):
		l.created(c.object, r)
		if c.detail != 0 && l.queriesFormats(c) {
			// The query of the devices that support the image's format costs a round trip.
			r.Class = trace.WaitedFor
			r.Forward, r.Backward = r.Forward+formatsQuery, r.Backward+formatsReply
		}
	case f.name == "clCreateKernelsInProgram":
		if r.Forward > 0 {
			r.Class = trace.Early // the recorder has the sizes of the messages that create the kernels
		}
	case strings.HasPrefix(f.name, "clCreate"):
		l.created(c.object, r)
		if f.name == "clCreateKernel" {
			l.forgetArguments(c.object)
		}
	case f.command && c.event != 0:
		l.created(c.event, r)
	case f.answer == "cached":
		l.query(f, c, r)
	}
}

// awaitsQueue reports whether a call creates a queue with properties that only the driver can check.
func awaitsQueue(f *function, c *rawCall) bool {
	return strings.HasPrefix(f.name, "clCreateCommandQueue") && c.detail&queueAwaited != 0
}

// createQueue adds the queries of the worker's clock to the creation of a queue. The first queue with
// profiling needs the offset of the clock; for properties that only the driver can check, the query's
// reply implies that the driver has created the queue, or refused it.
func (l *library) createQueue(c *rawCall, r *trace.Record) {
	l.created(c.queue, r)
	waits := uint64(0)
	if c.detail&queueProfiling != 0 && !l.clock {
		l.clock = true
		waits++
	}
	if c.detail&queueAwaited != 0 {
		waits++
	}
	if r.Failed {
		r.Forward = c.forward + releaseSize // the library drops a queue that the driver has refused
	}
	if waits > 0 {
		r.Class = trace.WaitedFor
		r.Forward, r.Backward = r.Forward+waits*messageHead, r.Backward+waits*statusReply
	}
}

func makeLocal(r *trace.Record) {
	r.Class, r.Blocking, r.Forward, r.Backward = trace.AnsweredLocally, trace.NonBlocking, 0, 0
}

// knowsArgument reports whether the kernel already has the argument, and records it.
func (l *library) knowsArgument(c *rawCall, r *trace.Record) bool {
	if r.Failed {
		return false
	}
	at := argument{c.object, c.serial}
	old, ok := l.arguments[at]
	if ok || len(l.arguments) < lookAhead {
		l.arguments[at] = c.detail
	}
	return ok && old == c.detail
}

// maxArguments is the number of arguments that are forgotten when a kernel's address is reused.
const maxArguments = 256

func (l *library) forgetArguments(kernel uint64) {
	for i := range uint64(maxArguments) {
		delete(l.arguments, argument{kernel, i})
	}
}

func (l *library) created(object uint64, r *trace.Record) {
	if object != 0 && !r.Failed && (len(l.references) < lookAhead || l.references[object] > 0) {
		l.references[object] = 1
	}
}

// retain counts a reference. An object whose creation is not recorded, as that of a program's kernels
// at once, has one already; a device that is not known is no object of the program.
func (l *library) retain(f *function, c *rawCall, r *trace.Record) {
	n, ok := l.references[c.object]
	switch {
	case ok:
		l.references[c.object] = n + 1
	case f.name != "clRetainDevice":
		l.created(c.object, r)
		if l.references[c.object] > 0 {
			l.references[c.object] = 2
		}
	}
}

// release reports whether other references are left, so that nothing is released on the device's
// node. Devices are never released there.
func (l *library) release(f *function, c *rawCall) bool {
	n, ok := l.references[c.object]
	switch {
	case f.name == "clReleaseDevice":
		return !ok
	case n > 1:
		l.references[c.object] = n - 1
		return true
	case f.name == "clReleaseKernel":
		l.forgetArguments(c.object) // another kernel may get the address
	}
	delete(l.references, c.object)
	return false
}

// query detects the queries that the library has to forward: each query for a program's binaries,
// the first for a kind of image formats, and queries of a device that the worker does not answer in
// advance.
func (l *library) query(f *function, c *rawCall, r *trace.Record) {
	forwarded := false
	switch f.name {
	case "clGetProgramInfo":
		forwarded = c.detail == programBinarySizes || c.detail == programBinaries && r.Backward > statusReply
	case "clGetSupportedImageFormats":
		forwarded = l.queriesFormats(c)
	case "clGetDeviceInfo":
		forwarded = !opencl.AnsweredInAdvance(c.op, uint32(c.detail)) && !slices.Contains(ownDeviceQueries, c.detail)
	}
	if forwarded {
		r.Class = trace.WaitedFor
		return
	}
	makeLocal(r)
}

// queriesFormats reports whether the library has to query the image formats that a call needs, and records
// that it knows them now.
func (l *library) queriesFormats(c *rawCall) bool {
	known := l.formats[c.detail]
	l.formats[c.detail] = known || len(l.formats) < lookAhead
	return !known
}

// ownDeviceQueries are the queries of a device that the library answers from its own state.
var ownDeviceQueries = []uint64{
	0x1031, // CL_DEVICE_PLATFORM
	0x1042, // CL_DEVICE_PARENT_DEVICE
	0x1047, // CL_DEVICE_REFERENCE_COUNT
}
