package overhead

import (
	"io"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// recording is a trace in memory.
type recording struct {
	header  trace.Header
	records []trace.Record
	end     *trace.End
	at      int
}

func (r *recording) Header() *trace.Header { return &r.header }
func (r *recording) End() *trace.End       { return r.end }

func (r *recording) Next() (trace.Record, error) {
	if r.at == len(r.records) {
		return trace.Record{}, io.EOF
	}
	r.at++
	return r.records[r.at-1], nil
}

// again returns the recording from its beginning.
func (r *recording) again() *recording {
	c := *r
	c.at = 0
	return &c
}

// Functions of the synthetic recordings, by index.
const (
	opInfo = iota
	opCreate
	opArgument
	opWrite
	opLaunch
	opRead
	opFinish
	opPoll
	opCallback
)

const queueID = 7

// program makes the recording of a local run of one thread, call by call.
type program struct {
	recording
	now    int64 // of the thread
	device int64 // when the device is idle
}

func newProgram() *program {
	p := &program{}
	p.header = trace.Header{
		API: "opencl", Mode: trace.Local, Client: trace.Machine{Cores: 4},
		Devices: []trace.Device{{Name: "device", SameMachine: true, Machine: trace.Machine{Cores: 4}}},
		Ops: []trace.Op{
			{Name: "clGetDeviceInfo", Answer: "cached"},
			{Name: "clCreateBuffer", Answer: "early"},
			{Name: "clSetKernelArg", Answer: "early"},
			{Name: "clEnqueueWriteBuffer", Answer: "early"},
			{Name: "clEnqueueNDRangeKernel", Answer: "early"},
			{Name: "clEnqueueReadBuffer", Answer: "wait"},
			{Name: "clFinish", Answer: "wait"},
			{Name: "clGetEventInfo", Answer: "local"},
			{Name: "clSetEventCallback", Answer: "local"},
		},
	}
	return p
}

// call adds a call that takes the driver some time, after a gap in the program.
func (p *program) call(op int, class trace.Class, gap, execute time.Duration) *trace.Record {
	begin := p.now + int64(gap)
	p.records = append(p.records, trace.Record{
		Op: uint16(op), Class: class, Gap: int64(gap), Begin: begin, End: begin + int64(execute), Execute: int64(execute),
	})
	p.now = begin + int64(execute)
	return &p.records[len(p.records)-1]
}

func (p *program) info(gap time.Duration) { p.call(opInfo, trace.AnsweredLocally, gap, 100) }

func (p *program) create(gap time.Duration) {
	p.call(opCreate, trace.Early, gap, time.Microsecond).Forward = 96
}

// enqueue adds a command that occupies the device.
func (p *program) enqueue(op int, bytes uint64, gap, execute, device time.Duration) *trace.Record {
	r := p.call(op, trace.Early, gap, execute)
	r.Command, r.Blocking, r.Queue, r.Forward = true, trace.DeviceBlocking, queueID, 80+bytes
	r.Start, r.DeviceTime = max(p.now, p.device), int64(device)
	p.device = r.Start + r.DeviceTime
	return r
}

func (p *program) launch(gap, device time.Duration) {
	p.enqueue(opLaunch, 0, gap, 2*time.Microsecond, device)
}

// launchWithin adds a launch whose driver's call takes longer than the device needs to begin.
func (p *program) launchWithin(gap, begins, execute, device time.Duration) {
	called := p.now + int64(gap)
	idle := p.device
	r := p.enqueue(opLaunch, 0, gap, execute, device)
	r.Start = max(called+int64(begins), idle, 1) // 0 says that it is not known
	p.device = r.Start + r.DeviceTime
}

func (p *program) write(bytes uint64, gap, device time.Duration) {
	p.enqueue(opWrite, bytes, gap, 2*time.Microsecond, device)
}

// wait makes the last call block until the device is done.
func (p *program) wait(r *trace.Record) {
	r.Class, r.Blocking, r.Queue = trace.WaitedFor, trace.HostBlocking, queueID
	r.End = max(r.End, p.device) + 5000
	r.Blocked = r.Duration() - r.Execute
	p.now = r.End
}

func (p *program) finish(gap time.Duration) {
	p.wait(p.call(opFinish, trace.WaitedFor, gap, time.Microsecond))
}

func (p *program) read(bytes uint64, gap, device time.Duration) {
	r := p.enqueue(opRead, 0, gap, time.Microsecond, device)
	p.wait(r)
	r.Backward = bytes + 40
}

// exit ends the program.
func (p *program) exit(gap time.Duration) *recording {
	p.end = &trace.End{Records: uint64(len(p.records)), Duration: p.now + int64(gap)}
	return &p.recording
}

// zero are the constants of forwarding that costs nothing.
func zero() Constants { return Constants{CopyRate: 1e18, RelayRate: 1e18} }

// open reads the recording from its beginning.
func (r *recording) open() (Source, error) { return r.again(), nil }
