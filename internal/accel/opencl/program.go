package opencl

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/wire"
)

// programState is what the dispatcher knows of a program: the devices that it
// may be built for, and how long its text or its binaries are. It never changes.
type programState struct {
	devices []deviceRef
	size    int64
}

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
	size := w.claim(c, len(a.Source))
	status := w.create(c, fnClCreateProgramWithSource, kindProgram, a.Result,
		c.handle(kindContext, a.Context), 1, driver.Address(b), driver.Address(b[8:]), c.errcode())
	w.addProgram(a.Result, a.Context).size = size
	return w.finish(c, status)
}

// claim takes room for what the driver keeps of a program that it is given.
func (w *Worker) claim(c *call, size int) int64 {
	if c.status != clSuccess {
		return 0
	}
	if !w.room(int64(size)) {
		c.fail(clOutOfHostMemory)
		return 0
	}
	return int64(size)
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
	states, size := c.memory(4*n), w.claim(c, len(a.Binary))
	status := w.create(c, fnClCreateProgramWithBinary, kindProgram, a.Result, c.handle(kindContext, a.Context), uintptr(n),
		c.handles(kindDevice, a.DeviceList), c.words(a.Lengths), c.words(pointers), driver.Address(states), c.errcode())
	r := replyClCreateProgramWithBinary{BinaryStatus: make([]uint32, n), Facts: []byte{}}
	for i := range r.BinaryStatus {
		r.BinaryStatus[i] = binary.LittleEndian.Uint32(states[4*i:])
	}
	w.programs[a.Result] = &programState{devices: w.refs(c, a.DeviceList), size: size}
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
	return w.compiling(m, b.program, run, func() error {
		w.frames.put(b.frame)
		return w.answer(b.ticket, clOutOfHostMemory, b.encode([]byte{}))
	})
}

// compiling runs a call in which the driver may compile the program: here when
// the client is alone, else beside the dispatcher. It refuses when too much runs
// there already.
func (w *Worker) compiling(m *message, program uintptr, run, refuse func() error) error {
	if alone(m) {
		return run()
	}
	w.drv.Call(fnClRetainProgram, program) // the client may release it meanwhile
	if w.beside(func() {
		err := run()
		w.drv.Call(fnClReleaseProgram, program)
		w.fault(err)
	}) {
		return nil
	}
	w.drv.Call(fnClReleaseProgram, program)
	return refuse()
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

// doClLinkProgram makes a program; later messages that name it wait for it.
func (w *Worker) doClLinkProgram(m *message, a *argsClLinkProgram) error {
	c := w.builder(m)
	context, devices := c.handle(kindContext, a.Context), c.handles(kindDevice, a.DeviceList)
	inputs, options, errcode := c.handles(kindProgram, a.InputPrograms), c.text(a.Options), c.errcode()
	if c.status == clSuccess && !w.drv.Has(fnClLinkProgram) {
		c.fail(clInvalidOperation)
	}
	if c.status == clSuccess && !w.room(programCost) {
		c.fail(clOutOfHostMemory)
	}
	p := w.addProgram(a.Result, a.Context)
	if c.status != clSuccess {
		defer w.frames.put(c.frame)
		w.enter(c, kindProgram, a.Result, 0, c.status)
		return w.reply(c, c.status, (&replyClLinkProgram{Facts: []byte{}}).encode(nil))
	}
	l := link{w: w, ticket: c.ticket(), frame: c.frame, id: a.Result, state: p, keep: w.promise(c, kindProgram, a.Result)}
	if c.broken != nil {
		return w.malformed(m, c.broken)
	}
	errOut := c.errOut
	l.call = func() (uintptr, int32) {
		handle := w.drv.Call(fnClLinkProgram, context, uintptr(len(a.DeviceList)), devices, options, uintptr(len(a.InputPrograms)), inputs, 0, 0, errcode)
		return handle, int32(uint32(word(errOut)))
	}
	if alone(m) {
		return l.run()
	}
	held := w.hold(context, append([]uint64{}, a.InputPrograms...))
	if w.beside(func() { w.fault(l.run()); held() }) {
		return nil
	}
	held()
	return l.end(0, clOutOfHostMemory)
}

// hold keeps a context and programs alive while a call beside the dispatcher uses
// them, until the function that it returns is called.
func (w *Worker) hold(context uintptr, programs []uint64) (release func()) {
	w.drv.Call(fnClRetainContext, context)
	var handles []uintptr
	for _, id := range programs {
		e, _ := w.objects.Get(id, kindProgram)
		handles = append(handles, e.Handle)
		w.drv.Call(fnClRetainProgram, e.Handle)
	}
	return func() {
		for _, h := range handles {
			w.drv.Call(fnClReleaseProgram, h)
		}
		w.drv.Call(fnClReleaseContext, context)
	}
}

// A link is a call of clLinkProgram, wherever it runs.
type link struct {
	w      *Worker
	ticket ticket
	frame  *driver.Frame
	id     uint64
	state  *programState
	call   func() (handle uintptr, status int32)
	keep   func(handle uintptr, status int32)
}

func (l *link) run() error { return l.end(l.call()) }

// end enters the program and answers. One that failed to link still exists when
// the driver says so: it has the log.
func (l *link) end(handle uintptr, status int32) error {
	defer l.w.frames.put(l.frame)
	facts := []byte{}
	if handle != 0 {
		facts = l.w.programFacts(l.id, l.state, handle)
		l.keep(handle, clSuccess)
	} else {
		if status == clSuccess {
			status = clOutOfResources
		}
		l.w.host.give(programCost)
		l.keep(0, status)
	}
	return l.w.answer(l.ticket, status, (&replyClLinkProgram{Facts: facts}).encode(nil))
}

// doClGetProgramInfo answers a query of a program. One for its binaries may take
// as long as a build: PoCL compiles only then what no launch has needed yet.
func (w *Worker) doClGetProgramInfo(m *message, a *argsClGetProgramInfo) error {
	c := w.builder(m)
	program, param, t := c.handle(kindProgram, a.Program), a.ParamName, c.ticket()
	run := func() error {
		defer w.frames.put(c.frame)
		status, value := w.programInfo(c, program, param)
		return w.answer(t, status, (&replyClGetProgramInfo{ParamValueSize: value}).encode(nil))
	}
	if c.status != clSuccess || param != clProgramBinarySizes && param != clProgramBinaries {
		return run()
	}
	return w.compiling(m, program, run, run)
}

// programInfo answers CL_PROGRAM_BINARIES with the binaries themselves: the API's
// own answer is an array of pointers.
func (w *Worker) programInfo(c *call, program uintptr, param uint32) (int32, []byte) {
	if c.status == clSuccess && param == clProgramBinaries {
		return w.binaries(c, program)
	}
	return w.query(c, fnClGetProgramInfo, program, uintptr(param))
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
