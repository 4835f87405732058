package opencl

import (
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/wire"
)

// buildCall is a call in which the compiler may run for long. Its arguments lie in a frame of its
// own.
type buildCall struct {
	ticket  ticket
	frame   *driver.Frame
	id      uint64
	program uintptr
	state   *programState
	call    func() int32
	// encode encodes the reply.
	encode func(facts []byte) []byte
}

// startBuild runs a build: on the dispatcher when the client is alone, else beside it.
func (ps *programs) startBuild(m *message, b buildCall) error {
	run := func() error {
		defer ps.frames.put(b.frame)
		status := b.call()
		facts := ps.facts(b.id, b.state, b.program)
		return ps.events.synchronizeAndAnswer(b.ticket, status, b.encode(facts))
	}
	return ps.runCompiler(m, b.program, run, func() error {
		ps.frames.put(b.frame)
		return ps.client.answer(b.ticket, clOutOfHostMemory, b.encode([]byte{}))
	})
}

// runCompiler runs a call in which the driver may compile the program: on the dispatcher when the
// client waits for nothing else, otherwise beside it. It calls refuse when too many calls run there
// already.
func (ps *programs) runCompiler(m *message, program uintptr, run, refuse func() error) error {
	if alone(m) {
		return run()
	}
	ps.drv.Call(fnClRetainProgram, program) // the client may release it meanwhile
	if ps.helpers.run(func() {
		err := run()
		ps.drv.Call(fnClReleaseProgram, program)
		ps.client.fail(err)
	}) {
		return nil
	}
	ps.drv.Call(fnClReleaseProgram, program)
	return refuse()
}

func (ps *programs) doClBuildProgram(m *message, a *argsClBuildProgram) error {
	options, err := ps.includes.install(a.Options, a.IncludeFiles)
	if err != nil {
		return malformed(m, err)
	}
	ps.recorder.build(a.Program, a.Options, a.IncludeFiles)
	c := ps.caller.beginOwnFrame(m)
	program, devices := c.handle(kindProgram, a.Program), c.handles(kindDevice, a.DeviceList)
	text := c.text(options)
	encode := func(facts []byte) []byte { return (&replyClBuildProgram{Facts: facts}).encode(nil) }
	if c.status != clSuccess || program == 0 {
		ps.frames.put(c.frame)
		return ps.refuseBuild(c, encode)
	}
	return ps.startBuild(m, buildCall{
		ticket: c.ticket(), frame: c.frame, id: a.Program, program: program, state: ps.state(a.Program), encode: encode,
		call: func() int32 {
			return int32(ps.drv.Call(fnClBuildProgram, program, uintptr(len(a.DeviceList)), devices, text, 0, 0))
		},
	})
}

// refuseBuild answers a build that could not begin.
func (ps *programs) refuseBuild(c *call, encode func([]byte) []byte) error {
	c.fail(invalid[kindProgram]) // unless another failure is set already
	return ps.caller.reply(c, c.status, encode([]byte{}))
}

func (ps *programs) doClCompileProgram(m *message, a *argsClCompileProgram) error {
	options, err := ps.includes.install(a.Options, a.IncludeFiles)
	if err != nil {
		return malformed(m, err)
	}
	c := ps.caller.beginOwnFrame(m)
	names, err := c.texts(a.IncludeNames, len(a.InputHeaders))
	if err != nil {
		ps.frames.put(c.frame)
		return malformed(m, err)
	}
	program, devices := c.handle(kindProgram, a.Program), c.handles(kindDevice, a.DeviceList)
	headers, text := c.handles(kindProgram, a.InputHeaders), c.text(options)
	encode := func(facts []byte) []byte { return (&replyClCompileProgram{Facts: facts}).encode(nil) }
	if c.status != clSuccess || program == 0 {
		ps.frames.put(c.frame)
		return ps.refuseBuild(c, encode)
	}
	return ps.startBuild(m, buildCall{
		ticket: c.ticket(), frame: c.frame, id: a.Program, program: program, state: ps.state(a.Program), encode: encode,
		call: func() int32 {
			return int32(ps.drv.Call(fnClCompileProgram, program, uintptr(len(a.DeviceList)), devices, text,
				uintptr(len(a.InputHeaders)), headers, names, 0, 0))
		},
	})
}

// texts builds an array of C strings from count arrays of bytes.
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

// doClLinkProgram creates a program; later messages that name the program wait for it.
func (ps *programs) doClLinkProgram(m *message, a *argsClLinkProgram) error {
	c := ps.caller.beginOwnFrame(m)
	context, devices := c.handle(kindContext, a.Context), c.handles(kindDevice, a.DeviceList)
	inputs, options, errcode := c.handles(kindProgram, a.InputPrograms), c.text(a.Options), c.errcode()
	if c.status == clSuccess && !ps.drv.Has(fnClLinkProgram) {
		c.fail(clInvalidOperation)
	}
	if c.status == clSuccess && !ps.hostMemory.reserve(programCost) {
		c.fail(clOutOfHostMemory)
	}
	p := ps.add(a.Result, a.Context)
	if c.status != clSuccess {
		defer ps.frames.put(c.frame)
		ps.objects.add(c, kindProgram, a.Result, 0, c.status)
		return ps.caller.reply(c, c.status, (&replyClLinkProgram{Facts: []byte{}}).encode(nil))
	}
	l := linkCall{programs: ps, ticket: c.ticket(), frame: c.frame, id: a.Result, state: p, resolve: ps.objects.promise(c, kindProgram, a.Result)}
	if c.broken != nil {
		return malformed(m, c.broken)
	}
	errOut := c.errOut
	l.call = func() (uintptr, int32) {
		handle := ps.drv.Call(fnClLinkProgram, context, uintptr(len(a.DeviceList)), devices, options, uintptr(len(a.InputPrograms)), inputs, 0, 0, errcode)
		return handle, int32(uint32(firstWord(errOut)))
	}
	if alone(m) {
		return l.run()
	}
	held := ps.retain(context, append([]uint64{}, a.InputPrograms...))
	if ps.helpers.run(func() { ps.client.fail(l.run()); held() }) {
		return nil
	}
	held()
	return l.end(0, clOutOfHostMemory)
}

// retain keeps a context and programs alive for a call beside the dispatcher, until release is
// called.
func (ps *programs) retain(context uintptr, programs []uint64) (release func()) {
	ps.drv.Call(fnClRetainContext, context)
	var handles []uintptr
	for _, id := range programs {
		e, _ := ps.objects.table.Get(id, kindProgram)
		handles = append(handles, e.Handle)
		ps.drv.Call(fnClRetainProgram, e.Handle)
	}
	return func() {
		for _, h := range handles {
			ps.drv.Call(fnClReleaseProgram, h)
		}
		ps.drv.Call(fnClReleaseContext, context)
	}
}

// linkCall is a call of clLinkProgram, on the dispatcher or beside it.
type linkCall struct {
	programs *programs
	ticket   ticket
	frame    *driver.Frame
	id       uint64
	state    *programState
	call     func() (handle uintptr, status int32)
	resolve  func(handle uintptr, status int32)
}

func (l *linkCall) run() error { return l.end(l.call()) }

// end adds the program to the table and answers. A program that failed to link still exists if the
// driver returned it: it holds the log.
func (l *linkCall) end(handle uintptr, status int32) error {
	defer l.programs.frames.put(l.frame)
	facts := []byte{}
	if handle != 0 {
		facts = l.programs.facts(l.id, l.state, handle)
		l.resolve(handle, clSuccess)
	} else {
		if status == clSuccess {
			status = clOutOfResources
		}
		l.programs.budget.release(programCost)
		l.resolve(0, status)
	}
	return l.programs.client.answer(l.ticket, status, (&replyClLinkProgram{Facts: facts}).encode(nil))
}
