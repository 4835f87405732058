package opencl

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/wire"
)

// programState is what the dispatcher knows of a program: the devices that it
// may be built for. It never changes.
type programState struct{ devices []deviceRef }

func (w *Worker) addProgram(id, context uint64) *programState {
	p := &programState{}
	if s := w.contexts[context]; s != nil {
		p.devices = s.devices
	}
	w.programs[id] = p
	return p
}

// program returns the state of a program, made by whatever call.
func (w *Worker) program(id uint64) *programState {
	if p := w.programs[id]; p != nil {
		return p
	}
	return &programState{devices: []deviceRef{{deviceID, w.device}}}
}

func (w *Worker) doClCreateProgramWithSource(m *message, a *argsClCreateProgramWithSource) error {
	c := w.begin(m)
	if bytes.Contains(a.Source, []byte("printf")) || bytes.Contains(a.Source, []byte("#include")) {
		w.output.wanted.Store(true)
	}
	b := c.memory(16)
	binary.LittleEndian.PutUint64(b, uint64(c.bytes(a.Source)))
	binary.LittleEndian.PutUint64(b[8:], uint64(len(a.Source)))
	if len(a.Source) == 0 {
		c.fail(clInvalidValue)
	}
	status := w.create(c, fnClCreateProgramWithSource, kindProgram, a.Result,
		c.handle(kindContext, a.Context), 1, driver.Address(b), driver.Address(b[8:]), c.errcode())
	w.addProgram(a.Result, a.Context)
	return w.finish(c, status)
}

func (w *Worker) doClCreateProgramWithBinary(m *message, a *argsClCreateProgramWithBinary) error {
	c := w.begin(m)
	n := len(a.DeviceList)
	if len(a.Lengths) != n {
		return w.malformed(m, fmt.Errorf("%d lengths for %d devices", len(a.Lengths), n))
	}
	w.output.wanted.Store(true)
	pointers, rest := make([]uint64, n), a.Binary
	for i, length := range a.Lengths {
		if length > uint64(len(rest)) {
			return w.malformed(m, fmt.Errorf("binary %d of %d bytes, %d left", i, length, len(rest)))
		}
		pointers[i] = uint64(driver.Address(rest))
		rest = rest[length:]
	}
	states := c.memory(4 * n)
	status := w.create(c, fnClCreateProgramWithBinary, kindProgram, a.Result, c.handle(kindContext, a.Context), uintptr(n),
		c.handles(kindDevice, a.DeviceList), c.words(a.Lengths), c.words(pointers), driver.Address(states), c.errcode())
	r := replyClCreateProgramWithBinary{BinaryStatus: make([]uint32, n), Facts: []byte{}}
	for i := range r.BinaryStatus {
		r.BinaryStatus[i] = binary.LittleEndian.Uint32(states[4*i:])
	}
	w.programs[a.Result] = &programState{devices: w.refs(c, a.DeviceList)}
	r.Facts = w.factsOf(a.Result, status)
	return w.reply(c, status, r.encode(c.body))
}

func (w *Worker) doClCreateProgramWithBuiltInKernels(m *message, a *argsClCreateProgramWithBuiltInKernels) error {
	c := w.begin(m)
	w.output.wanted.Store(true)
	status := w.create(c, fnClCreateProgramWithBuiltInKernels, kindProgram, a.Result, c.handle(kindContext, a.Context),
		uintptr(len(a.DeviceList)), c.handles(kindDevice, a.DeviceList), c.text(a.KernelNames), c.errcode())
	w.programs[a.Result] = &programState{devices: w.refs(c, a.DeviceList)}
	r := replyClCreateProgramWithBuiltInKernels{Facts: w.factsOf(a.Result, status)}
	return w.reply(c, status, r.encode(c.body))
}

// factsOf are the facts of a program that the dispatcher has just made.
func (w *Worker) factsOf(id uint64, status int32) []byte {
	e, ok := w.objects.Get(id, kindProgram)
	if status != clSuccess || !ok {
		return []byte{}
	}
	return w.programFacts(id, w.program(id), e.Handle)
}

// A build is a call that the compiler may take long over. Its arguments lie in
// memory of its own.
type build struct {
	ticket  ticket
	frame   *driver.Frame
	id      uint64
	program uintptr
	state   *programState
	call    func() int32
	// encode makes the reply.
	encode func(facts []byte) []byte
}

// start runs a build, here when the client is alone, else beside the dispatcher.
func (w *Worker) start(m *message, b build) error {
	run := func() error {
		defer w.frames.put(b.frame)
		status := b.call()
		facts := w.programFacts(b.id, b.state, b.program)
		return w.answerSynchronised(b.ticket, status, b.encode(facts))
	}
	if alone(m) {
		return run()
	}
	w.drv.Call(fnClRetainProgram, b.program) // the client may release it meanwhile
	w.waits.Go(func() {
		err := run()
		w.drv.Call(fnClReleaseProgram, b.program)
		w.fault(err)
	})
	return nil
}

// builder begins a call whose arguments outlive the dispatcher's frame.
func (w *Worker) builder(m *message) *call {
	return &call{w: w, m: m, frame: w.frames.get()}
}

func (w *Worker) doClBuildProgram(m *message, a *argsClBuildProgram) error {
	options, err := w.include(a.Options, a.IncludeFiles)
	if err != nil {
		return w.malformed(m, err)
	}
	c := w.builder(m)
	program, devices := c.handle(kindProgram, a.Program), c.handles(kindDevice, a.DeviceList)
	text := c.text(options)
	encode := func(facts []byte) []byte { return (&replyClBuildProgram{Facts: facts}).encode(nil) }
	if c.status != clSuccess || program == 0 {
		w.frames.put(c.frame)
		return w.refuse(c, encode)
	}
	return w.start(m, build{
		ticket: c.ticket(), frame: c.frame, id: a.Program, program: program, state: w.program(a.Program), encode: encode,
		call: func() int32 {
			return int32(w.drv.Call(fnClBuildProgram, program, uintptr(len(a.DeviceList)), devices, text, 0, 0))
		},
	})
}

// refuse answers a build that can't even begin.
func (w *Worker) refuse(c *call, encode func([]byte) []byte) error {
	c.fail(invalid[kindProgram]) // unless it has a reason already
	return w.reply(c, c.status, encode([]byte{}))
}

func (w *Worker) doClCompileProgram(m *message, a *argsClCompileProgram) error {
	options, err := w.include(a.Options, a.IncludeFiles)
	if err != nil {
		return w.malformed(m, err)
	}
	c := w.builder(m)
	names, err := c.texts(a.IncludeNames, len(a.InputHeaders))
	if err != nil {
		w.frames.put(c.frame)
		return w.malformed(m, err)
	}
	program, devices := c.handle(kindProgram, a.Program), c.handles(kindDevice, a.DeviceList)
	headers, text := c.handles(kindProgram, a.InputHeaders), c.text(options)
	encode := func(facts []byte) []byte { return (&replyClCompileProgram{Facts: facts}).encode(nil) }
	if c.status != clSuccess || program == 0 {
		w.frames.put(c.frame)
		return w.refuse(c, encode)
	}
	return w.start(m, build{
		ticket: c.ticket(), frame: c.frame, id: a.Program, program: program, state: w.program(a.Program), encode: encode,
		call: func() int32 {
			return int32(w.drv.Call(fnClCompileProgram, program, uintptr(len(a.DeviceList)), devices, text,
				uintptr(len(a.InputHeaders)), headers, names, 0, 0))
		},
	})
}

// texts makes an array of C strings from count arrays of bytes.
func (c *call) texts(packed []byte, count int) (uintptr, error) {
	if count == 0 {
		return 0, nil
	}
	d := wire.NewDecoder(packed)
	if got := d.U64(); got != uint64(count) {
		return 0, fmt.Errorf("%d names for %d headers", got, count)
	}
	pointers := make([]uint64, count)
	for i := range pointers {
		name, _ := d.String()
		pointers[i] = uint64(c.text(text{value: name, present: true}))
	}
	return c.words(pointers), d.Done()
}

// doClLinkProgram links on the dispatcher: it makes an object, which later
// messages may name at once.
func (w *Worker) doClLinkProgram(m *message, a *argsClLinkProgram) error {
	c := w.begin(m)
	c.object = a.Result
	context, devices := c.handle(kindContext, a.Context), c.handles(kindDevice, a.DeviceList)
	inputs, options, errcode := c.handles(kindProgram, a.InputPrograms), c.text(a.Options), c.errcode()
	status, handle := c.status, uintptr(0)
	if status == clSuccess && !w.drv.Has(fnClLinkProgram) {
		status = clInvalidOperation
	}
	if status == clSuccess {
		handle = w.drv.Call(fnClLinkProgram, context, uintptr(len(a.DeviceList)), devices, options, uintptr(len(a.InputPrograms)), inputs, 0, 0, errcode)
		status = int32(uint32(word(c.errOut)))
	}
	// A program that failed to link still exists: it has the log.
	entered := status
	if handle != 0 {
		entered = clSuccess
	}
	w.enter(c, kindProgram, a.Result, handle, entered)
	p := w.addProgram(a.Result, a.Context)
	facts := []byte{}
	if handle != 0 {
		facts = w.programFacts(a.Result, p, handle)
	}
	return w.reply(c, status, (&replyClLinkProgram{Facts: facts}).encode(c.body))
}

// doClGetProgramInfo answers CL_PROGRAM_BINARIES with the binaries themselves:
// the API's own answer is an array of pointers.
func (w *Worker) doClGetProgramInfo(m *message, a *argsClGetProgramInfo) error {
	c := w.begin(m)
	program := c.handle(kindProgram, a.Program)
	if a.ParamName != clProgramBinaries || c.status != clSuccess {
		status, value := w.query(c, fnClGetProgramInfo, program, uintptr(a.ParamName))
		return w.reply(c, status, (&replyClGetProgramInfo{ParamValueSize: value}).encode(c.body))
	}
	status, value := w.binaries(c, program)
	return w.reply(c, status, (&replyClGetProgramInfo{ParamValueSize: value}).encode(c.body))
}

func (w *Worker) binaries(c *call, program uintptr) (int32, []byte) {
	status, sizes := w.query(c, fnClGetProgramInfo, program, clProgramBinarySizes)
	if status != clSuccess {
		return status, nil
	}
	n, total := len(sizes)/8, uint64(0)
	for i := range n {
		total += min(word(sizes[8*i:]), maxAnswer)
	}
	if total > maxAnswer {
		return clOutOfHostMemory, nil
	}
	all, at := c.memory(int(total)), uint64(0)
	pointers := make([]uint64, n)
	for i := range n {
		if size := word(sizes[8*i:]); size > 0 {
			pointers[i] = uint64(driver.Address(all[at:]))
			at += size
		}
	}
	list := c.words(pointers)
	if c.status != clSuccess {
		return c.status, nil
	}
	return int32(w.drv.Call(fnClGetProgramInfo, program, clProgramBinaries, uintptr(8*n), list, 0)), all
}
