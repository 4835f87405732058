package opencl

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// programs creates and builds programs.
type programs struct {
	drv        *driver.Table
	caller     *caller
	client     *client
	frames     *frames
	device     *device
	budget     *budget
	hostMemory *hostMemory
	objects    *objects
	events     *events
	output     *output
	contexts   *contexts
	includes   *includes
	helpers    *helpers

	byID     map[uint64]*programState
	recorder *recorder
}

// programState is the dispatcher's state of a program: the devices that it may be built for, and
// the size of its text or its binaries. It never changes.
type programState struct {
	devices []deviceRef
	size    int64
}

func (ps *programs) add(id, context uint64) *programState {
	p := &programState{}
	if s := ps.contexts.byID[context]; s != nil {
		p.devices = s.devices
	}
	ps.byID[id] = p
	return p
}

// state returns the state of a program, whichever call created it.
func (ps *programs) state(id uint64) *programState {
	if p := ps.byID[id]; p != nil {
		return p
	}
	return &programState{devices: []deviceRef{{deviceID, ps.device.handle}}}
}

func (ps *programs) doClCreateProgramWithSource(m *message, a *argsClCreateProgramWithSource) error {
	c := ps.caller.begin(m)
	if bytes.Contains(a.Source, []byte("printf")) || bytes.Contains(a.Source, []byte("#include")) {
		ps.output.wanted.Store(true)
	}
	b, source := c.memory(16), a.Source
	if a.Source == nil {
		c.fail(clInvalidValue)
	}
	if len(source) == 0 {
		source = c.memory(1) // a length of 0 means that the source ends with a zero
	}
	binary.LittleEndian.PutUint64(b, uint64(c.bytes(source)))
	binary.LittleEndian.PutUint64(b[8:], uint64(len(a.Source)))
	size := ps.reserveText(c, len(a.Source))
	status := ps.caller.create(c, fnClCreateProgramWithSource, kindProgram, a.Result,
		c.handle(kindContext, a.Context), 1, driver.Address(b), driver.Address(b[8:]), c.errcode())
	ps.add(a.Result, a.Context).size = size
	ps.recorder.source(a.Result, a.Source)
	return ps.caller.finish(c, status)
}

// reserveText reserves the memory that the driver keeps for the text or the binaries of a program.
func (ps *programs) reserveText(c *call, size int) int64 {
	if c.status != clSuccess {
		return 0
	}
	if !ps.hostMemory.reserve(int64(size)) {
		c.fail(clOutOfHostMemory)
		return 0
	}
	return int64(size)
}

func (ps *programs) doClCreateProgramWithBinary(m *message, a *argsClCreateProgramWithBinary) error {
	c := ps.caller.begin(m)
	n := len(a.DeviceList)
	if len(a.Lengths) != n {
		return malformed(m, fmt.Errorf("%d lengths for %d devices", len(a.Lengths), n))
	}
	ps.output.wanted.Store(true)
	pointers, rest := make([]uint64, n), a.Binary
	for i, length := range a.Lengths {
		if length > uint64(len(rest)) {
			return malformed(m, fmt.Errorf("binary %d of %d bytes, %d left", i, length, len(rest)))
		}
		pointers[i] = uint64(driver.Address(rest))
		rest = rest[length:]
	}
	states, size := c.memory(4*n), ps.reserveText(c, len(a.Binary))
	status := ps.caller.create(c, fnClCreateProgramWithBinary, kindProgram, a.Result, c.handle(kindContext, a.Context), uintptr(n),
		c.handles(kindDevice, a.DeviceList), c.words(a.Lengths), c.words(pointers), driver.Address(states), c.errcode())
	r := replyClCreateProgramWithBinary{BinaryStatus: make([]uint32, n), Facts: []byte{}}
	for i := range r.BinaryStatus {
		r.BinaryStatus[i] = binary.LittleEndian.Uint32(states[4*i:])
	}
	ps.byID[a.Result] = &programState{devices: ps.contexts.devices(c, a.DeviceList), size: size}
	r.Facts = ps.factsOfNew(a.Result, status)
	return ps.caller.reply(c, status, r.encode(c.body))
}

func (ps *programs) doClCreateProgramWithBuiltInKernels(m *message, a *argsClCreateProgramWithBuiltInKernels) error {
	c := ps.caller.begin(m)
	ps.output.wanted.Store(true)
	status := ps.caller.create(c, fnClCreateProgramWithBuiltInKernels, kindProgram, a.Result, c.handle(kindContext, a.Context),
		uintptr(len(a.DeviceList)), c.handles(kindDevice, a.DeviceList), c.text(a.KernelNames), c.errcode())
	ps.byID[a.Result] = &programState{devices: ps.contexts.devices(c, a.DeviceList)}
	r := replyClCreateProgramWithBuiltInKernels{Facts: ps.factsOfNew(a.Result, status)}
	return ps.caller.reply(c, status, r.encode(c.body))
}

// factsOfNew returns the facts of a program that the dispatcher has just created.
func (ps *programs) factsOfNew(id uint64, status int32) []byte {
	e, ok := ps.objects.table.Get(id, kindProgram)
	if status != clSuccess || !ok {
		return []byte{}
	}
	return ps.facts(id, ps.state(id), e.Handle)
}

// doClGetProgramInfo answers a query of a program. A query for the binaries may take as long as a
// build: only then does PoCL compile the kernels that no launch has needed yet.
func (ps *programs) doClGetProgramInfo(m *message, a *argsClGetProgramInfo) error {
	c := ps.caller.beginOwnFrame(m)
	program, param, t := c.handle(kindProgram, a.Program), a.ParamName, c.ticket()
	run := func() error {
		defer ps.frames.put(c.frame)
		status, value := ps.info(c, program, param)
		return ps.client.answer(t, status, (&replyClGetProgramInfo{ParamValueSize: value}).encode(nil))
	}
	if c.status != clSuccess || param != clProgramBinarySizes && param != clProgramBinaries {
		return run()
	}
	ps.recorder.binaries(a.Program)
	return ps.runCompiler(m, program, run, run)
}

// info answers CL_PROGRAM_BINARIES with the binaries themselves: the answer of the API is an array
// of pointers.
func (ps *programs) info(c *call, program uintptr, param uint32) (int32, []byte) {
	if c.status == clSuccess && param == clProgramBinaries {
		return ps.binaries(c, program)
	}
	return ps.caller.query(c, fnClGetProgramInfo, program, uintptr(param))
}

func (ps *programs) binaries(c *call, program uintptr) (int32, []byte) {
	status, sizes := ps.caller.query(c, fnClGetProgramInfo, program, clProgramBinarySizes)
	if status != clSuccess {
		return status, nil
	}
	n, total := len(sizes)/8, uint64(0)
	for i := range n {
		total += min(firstWord(sizes[8*i:]), maxAnswer)
	}
	if total > maxAnswer {
		return clOutOfHostMemory, nil
	}
	all, at := c.memory(int(total)), uint64(0)
	pointers := make([]uint64, n)
	for i := range n {
		if size := firstWord(sizes[8*i:]); size > 0 {
			pointers[i] = uint64(driver.Address(all[at:]))
			at += size
		}
	}
	list := c.words(pointers)
	if c.status != clSuccess {
		return c.status, nil
	}
	return int32(ps.drv.Call(fnClGetProgramInfo, program, clProgramBinaries, uintptr(8*n), list, 0)), all
}

func (ps *programs) forget(id uint64) {
	if p := ps.byID[id]; p != nil {
		ps.budget.release(p.size)
	}
	ps.recorder.forgetProgram(id)
	delete(ps.byID, id)
}
