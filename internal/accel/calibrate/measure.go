package calibrate

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/driver"
)

// Functions of the program, by index.
const (
	getPlatforms = iota
	getDevices
	getDeviceInfo
	createContext
	createQueue
	createBuffer
	createProgram
	buildProgram
	createKernel
	setArgument
	finish
	writeBuffer
	readBuffer
	launchKernel
)

var functions = []string{
	"clGetPlatformIDs", "clGetDeviceIDs", "clGetDeviceInfo", "clCreateContext", "clCreateCommandQueue", "clCreateBuffer",
	"clCreateProgramWithSource", "clBuildProgram", "clCreateKernel", "clSetKernelArg", "clFinish", "clEnqueueWriteBuffer", "clEnqueueReadBuffer", "clEnqueueNDRangeKernel",
}

const (
	deviceTypeAll  = 0xFFFFFFFF
	deviceMaxUnits = 0x1002
)

// The sizes of the measurement.
const (
	bursts      = 40
	burst       = 64
	streamCalls = 10_000
	bulk        = 16 << 20
	bulkRounds  = 3
	copied      = 256 << 10
)

// source is the program that is built: its kernel serves to set its argument.
const source = "kernel void k(int x, global int *p) { if (x == 7) p[0] = x; }"

// program makes the calls of one process.
type program struct {
	fn            *driver.Table
	frame         *driver.Frame
	device        uintptr
	context       uintptr
	queue, kernel uintptr
	buffer        uintptr
	build, init   time.Duration
	platforms     time.Duration // the part of init until the platforms were found
	err           error
}

// Measure loads the system's OpenCL loader and measures the first device that it has.
func Measure(library string) (Sample, error) {
	began := time.Now()
	p, err := load(library)
	if err != nil {
		return Sample{}, err
	}
	loaded := time.Since(began)
	p.open()
	opened := time.Since(began)
	if p.err != nil {
		return Sample{}, p.err
	}
	s := Sample{Query: p.query(), Early: p.early(), Stream: p.stream(), Copy: p.copying()}
	s.Write, s.Read = p.transfers()
	s.Speed = p.speed()
	s.Build, s.Init, s.Open, s.Wall = float64(p.build), float64(p.init), float64(opened-p.build), float64(time.Since(began))
	s.Load, s.Platforms = float64(loaded), float64(p.platforms)
	return s, p.err
}

// load loads an OpenCL loader.
func load(library string) (*program, error) {
	l, err := driver.Open(library)
	if err != nil {
		return nil, err
	}
	frame, err := driver.NewFrame()
	if err != nil {
		return nil, err
	}
	return &program{fn: l.Bind(functions), frame: frame}, nil
}

// call calls a function that returns a status.
func (p *program) call(fn int, args ...uintptr) {
	if p.err != nil {
		return
	}
	if status := int32(p.fn.Call(fn, args...)); status != 0 {
		p.err = outboard.Errorf(outboard.NoDevice, "calibrate", "%s: error %d", functions[fn], status)
	}
}

// create calls a function that returns an object; the last argument, which create adds, receives
// the status.
func (p *program) create(fn int, args ...uintptr) uintptr {
	if p.err != nil {
		return 0
	}
	status := p.memory(8)
	object := p.fn.Call(fn, append(args, driver.Address(status))...)
	if code := int32(binary.LittleEndian.Uint32(status)); code != 0 || object == 0 {
		p.err = outboard.Errorf(outboard.NoDevice, "calibrate", "%s: error %d", functions[fn], code)
	}
	return object
}

func (p *program) memory(n int) []byte {
	b, err := p.frame.Bytes(n)
	if err != nil && p.err == nil {
		p.err = err
	}
	return b
}

// handle calls a function that writes one handle to memory.
func (p *program) handle(call func(at uintptr)) uintptr {
	b := p.memory(8)
	call(driver.Address(b))
	return uintptr(binary.LittleEndian.Uint64(b))
}

func (p *program) open() {
	for fn, name := range functions {
		if !p.fn.Has(fn) {
			p.err = fmt.Errorf("calibrate: the OpenCL loader has no %s", name)
			return
		}
	}
	began := time.Now()
	platform := p.handle(func(at uintptr) { p.call(getPlatforms, 1, at, 0) })
	p.platforms = time.Since(began)
	p.device = p.handle(func(at uintptr) { p.call(getDevices, platform, deviceTypeAll, 1, at, 0) })
	p.init = time.Since(began)
	devices := p.memory(8)
	binary.LittleEndian.PutUint64(devices, uint64(p.device))
	p.context = p.create(createContext, 0, 1, driver.Address(devices), 0, 0)
	p.queue = p.create(createQueue, p.context, p.device, 0)
	p.buffer = p.create(createBuffer, p.context, 0, bulk, 0)
	began = time.Now()
	built := p.buildFrom(source)
	p.build = time.Since(began)
	name := p.memory(2)
	name[0] = 'k'
	p.kernel = p.create(createKernel, built, driver.Address(name))
	p.call(finish, p.queue)
}

// query returns the time of a query.
func (p *program) query() float64 {
	value := p.memory(8)
	return p.perCall(burst, nil, func() { p.call(getDeviceInfo, p.device, deviceMaxUnits, 8, driver.Address(value), 0) })
}

// early returns the thread's time for a call without an answer, in bursts that fit into the ring.
func (p *program) early() float64 {
	set := p.setter()
	return p.perCall(burst, func() { p.call(finish, p.queue) }, set)
}

// perCall returns the median over bursts of the time of each call; between the bursts it calls
// between.
func (p *program) perCall(calls int, between, call func()) float64 {
	var times []float64
	for range bursts {
		if between != nil {
			between()
		}
		began := time.Now()
		for range calls {
			call()
		}
		times = append(times, float64(time.Since(began))/float64(calls))
	}
	return median(times)
}

// setter returns a function that sets the argument to another value each time: the driver library
// sends no value that the kernel already has.
func (p *program) setter() func() {
	argument := p.memory(8)
	x := uint32(0)
	return func() {
		x++
		binary.LittleEndian.PutUint32(argument, x)
		p.call(setArgument, p.kernel, 0, 4, driver.Address(argument))
	}
}

func (p *program) stream() float64 {
	set := p.setter()
	began := time.Now()
	for range streamCalls {
		set()
	}
	p.call(finish, p.queue)
	return float64(time.Since(began)) / streamCalls
}

// copying returns the rate, in bytes/s, of the thread's part of a write of moderate size.
func (p *program) copying() float64 {
	data, err := driver.Alloc(copied)
	if err != nil {
		return 0
	}
	defer driver.Free(data)
	write := func() { p.call(writeBuffer, p.queue, p.buffer, 0, 0, copied, driver.Address(data), 0, 0, 0) }
	t := p.perCall(1, func() { p.call(finish, p.queue) }, write)
	p.call(finish, p.queue)
	return copied / max(t, 1) * 1e9
}

// transfers returns the rates of large writes and reads, in bytes/s.
func (p *program) transfers() (write, read float64) {
	data, err := driver.Alloc(bulk)
	if err != nil {
		return 0, 0
	}
	defer driver.Free(data)
	rate := func(call func()) float64 {
		call() // touches the memory of both ends
		var times []float64
		for range bulkRounds {
			began := time.Now()
			call()
			times = append(times, float64(time.Since(began)))
		}
		return bulk / median(times) * 1e9
	}
	write = rate(func() {
		p.call(writeBuffer, p.queue, p.buffer, 1, 0, bulk, driver.Address(data), 0, 0, 0)
		p.call(finish, p.queue)
	})
	read = rate(func() { p.call(readBuffer, p.queue, p.buffer, 1, 0, bulk, driver.Address(data), 0, 0, 0) })
	return write, read
}

func median(values []float64) float64 {
	slices.Sort(values)
	return max(values[len(values)/2], 1)
}
