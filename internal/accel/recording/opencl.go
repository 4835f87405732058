package recording

import (
	"strings"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// Properties of OpenCL's functions that the API's description does not state.
const (
	queueOutOfOrder     = 1 << 0 // CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
	mapRead             = 1 << 0 // CL_MAP_READ
	mapWrite            = 1 << 1 // CL_MAP_WRITE
	mapWriteInvalidate  = 1 << 2 // CL_MAP_WRITE_INVALIDATE_REGION
	deviceTypeCPU       = 1 << 1
	deviceTypeGPU       = 1 << 2
	releaseSize         = 32 + 2*8 // the message that ends an object
	markerSize          = 32 + 3*8 // the message of a command without arguments or waits
	finishSize          = 32 + 8   // the message that waits for a queue
	waitSize            = 32 + 2*8 // the message that waits for an event
	watchSize           = 32 + 8   // the message that has an event's completion told
	bufferTransferSize  = 32 + 7*8 // the head of a transfer from or to a buffer, and an image
	imageTransferSize   = 32 + 13*8
	messageHead         = 32
	handleSize          = 8
	launchSize          = 32 + 10*8 // of one dimension
	createdImageSize    = 32 + 17*8
	createdContextWords = 32 + 8*8
)

// function describes a function of the API to a recorder.
type function struct {
	name    string
	answer  string
	command bool // enqueues a command
	timed   bool // a command with an event, whose times the device tells
	creates bool // its event, or queue, is new
	waits   bool // waits for the commands of a queue or of events
	watches bool // learns, or has a callback learn, that an event is complete
	// size is the request's size if the description gives none: the driver library turns the call
	// into other calls.
	size uint64
}

// functionsOf describes an API's functions.
func functionsOf(ops []trace.Op) []function {
	all := make([]function, len(ops))
	for i, op := range ops {
		f := function{name: op.Name, answer: op.Answer}
		f.command = strings.HasPrefix(op.Name, "clEnqueue") && op.Answer != "refused"
		f.timed = f.command && op.Name != "clEnqueueBarrier" && op.Name != "clEnqueueWaitForEvents"
		f.creates = f.command || strings.HasPrefix(op.Name, "clCreate")
		f.waits = op.Name == "clFinish" || op.Name == "clWaitForEvents"
		f.watches = op.Name == "clGetEventInfo" || op.Name == "clSetEventCallback"
		f.size = localSize(op.Name, op.Answer)
		all[i] = f
	}
	return all
}

// localSize returns the size of the messages of a call that the driver library turns into other
// calls.
func localSize(name, answer string) uint64 {
	switch {
	case answer != "local":
		return 0
	case strings.HasPrefix(name, "clRelease"), name == "clSVMFree":
		return releaseSize
	case name == "clSVMAlloc", name == "clEnqueueSVMMemFill", name == "clSetKernelArgSVMPointer":
		return messageHead // the recorder adds the rest
	case strings.HasPrefix(name, "clCreateImage"):
		return createdImageSize
	case name == "clCreateContextFromType":
		return createdContextWords
	case name == "clEnqueueTask":
		return launchSize
	case strings.HasPrefix(name, "clEnqueue"):
		return markerSize
	}
	return 0
}

// classify returns the class of a call if it were forwarded.
func (f *function) classify(blocking bool) trace.Class {
	switch {
	case f.answer == "early", f.size > 0 && !blocking:
		return trace.Early
	case f.answer == "wait", f.size > 0:
		return trace.WaitedFor
	case strings.HasPrefix(f.answer, "wait(") && blocking:
		return trace.WaitedFor
	case strings.HasPrefix(f.answer, "wait("):
		return trace.Early
	}
	return trace.AnsweredLocally
}

// blocking returns the relation of a call of that class to queues.
func (f *function) blocking(class trace.Class) trace.Blocking {
	switch {
	case f.waits, f.command && class == trace.WaitedFor:
		return trace.HostBlocking
	case f.command:
		return trace.DeviceBlocking
	}
	return trace.NonBlocking
}

// mapping is memory that the program has mapped.
type mapping struct {
	size   uint64
	writes bool
	head   uint64 // of the message that transfers it
}

// trackMaps derives the messages of maps and unmaps in a local run: a map reads its region unless all
// of it is overwritten or the library has it, and an unmap writes it back if it was mapped for that.
func (p *joiner) trackMaps(f *function, c *rawCall, r *trace.Record) {
	if r.Failed {
		return
	}
	switch f.name {
	case "clEnqueueMapBuffer", "clEnqueueMapImage", "clEnqueueSVMMap":
		m := mapping{size: c.backward, writes: c.detail&(mapWrite|mapWriteInvalidate) != 0, head: bufferTransferSize}
		if f.name == "clEnqueueMapImage" {
			m.head = imageTransferSize
		}
		if len(p.maps) < lookAhead && c.object != 0 {
			p.maps[c.object] = m
		}
		overwrites := c.detail&mapWriteInvalidate != 0 && c.detail&(mapRead|mapWrite) == 0
		if overwrites || c.flags&flagCurrent != 0 {
			mapNothing(c, r)
		} else {
			r.Forward, r.Backward = m.head, r.Backward+messageHead
		}
	case "clEnqueueUnmapMemObject", "clEnqueueSVMUnmap":
		m, known := p.maps[c.object]
		delete(p.maps, c.object)
		switch {
		case known && m.writes:
			r.Forward = m.head + m.size
		case marks(c):
			r.Forward = markerSize + handleSize*uint64(len(c.waits))
		default:
			makeLocal(r)
		}
	}
}

// marks reports whether a call without data to transfer sends a marker, for its event or its waits.
func marks(c *rawCall) bool { return c.event != 0 || len(c.waits) > 0 }

// mapNothing sets the messages of a map that reads nothing (cmd/libopencl/calls/map.c: map_nothing): a
// blocking one finishes the queue, or waits for its marker.
func mapNothing(c *rawCall, r *trace.Record) {
	marker := markerSize + handleSize*uint64(len(c.waits))
	switch {
	case marks(c) && r.Class == trace.WaitedFor:
		r.Forward, r.Backward = marker+waitSize, messageHead
	case marks(c):
		r.Forward, r.Backward = marker, 0
	case r.Class == trace.WaitedFor:
		r.Command, r.Forward, r.Backward = false, finishSize, messageHead
	default:
		makeLocal(r)
	}
}
