package compute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
)

// program builds a program.
func (r *run) program(i int, c *Command) error {
	h := r.holder
	switch {
	case h.programs[c.number] != nil:
		return fmt.Errorf("there is a program %d already: choose another number", c.number)
	case len(h.programs) == maxPrograms:
		return fmt.Errorf("there are %d programs, and no more are allowed", maxPrograms)
	}
	b, err := r.acquireProgram(i, c)
	if err != nil {
		return err
	}
	p := &program{built: b, kernels: make(map[string]*kernel, len(b.kernels))}
	for name, want := range b.kernels {
		p.kernels[name] = &kernel{params: want}
	}
	h.programs[c.number] = p
	return nil
}

// build builds a program on the device. It releases a program that can't be built.
func (r *run) build(i int, c *Command, b *built) error {
	h := r.holder
	b.id = h.device.newID()
	args := argsClCreateProgramWithSource{Context: h.device.context, Source: []byte(c.source), Result: b.id}
	if err := h.send(r, i, opClCreateProgramWithSource, &args); err != nil {
		return err
	}
	w, err := h.request(r, opClBuildProgram, &argsClBuildProgram{Program: b.id, Options: text{c.options, c.options != ""}}, owner{r, i}, nil)
	if err != nil {
		return err
	}
	select {
	case <-w.done:
	case <-r.ctx.Done():
		r.abandon([]*wait{w})
		return context.Cause(r.ctx)
	}
	body, err := w.result()
	log, wrong := b.readReply(body)
	switch {
	case wrong != nil:
		err = wrong
	case err != nil && log != "":
		err = fmt.Errorf("%w: the build's log:\n%s", err, log)
	}
	if err != nil {
		return errors.Join(err, r.release(kindProgram, b.id))
	}
	return nil
}

// maxBuildLog bounds the part of a build's log in an error.
const maxBuildLog = 16 << 10

// readReply reads the facts that the worker reports about a build: the kernels, their
// parameters and the build's log.
func (b *built) readReply(body []byte) (log string, err error) {
	var reply replyClBuildProgram
	if len(body) == 0 {
		return "", nil
	}
	if err := reply.decode(body); err != nil {
		return "", outboard.Errorf(outboard.Protocol, "session", "a build's reply: %w", err)
	}
	var names []string
	known := map[uint64]parameters{}
	of := func(index uint64) parameters {
		if k, ok := known[index]; ok {
			return k
		}
		return parameters{-1, map[uint16]uint32{}}
	}
	err = eachFact(reply.Facts, func(f fact) {
		switch {
		case f.op == opClGetProgramBuildInfo && f.param == programBuildLog:
			log = strings.TrimSpace(strings.ToValidUTF8(f.text(), "?"))
			log = log[:min(len(log), maxBuildLog)]
		case f.op == opClGetProgramBuildInfo && f.param == programVariables:
			b.private = f.uint64Value() > 0 // another holder would read the data of this one
		case f.op == opClGetProgramInfo && f.param == programKernelNames && f.text() != "":
			names = strings.Split(f.text(), ";")
		case f.op == opClGetKernelInfo && f.param == kernelNumArgs:
			k := of(f.object)
			k.count = int(f.uint64Value() & 0xffffffff)
			known[f.object] = k
		case f.op == opClGetKernelArgInfo && f.param == kernelArgSpace:
			k := of(f.object)
			k.spaces[f.index] = uint32(f.uint64Value())
			known[f.object] = k
		}
	})
	b.kernels = make(map[string]parameters, len(names))
	for i, name := range names {
		b.kernels[name] = of(uint64(i))
	}
	return log, err
}

func (r *run) launch(i int, c *Command) error {
	h := r.holder
	p := h.programs[c.number]
	if p == nil {
		return fmt.Errorf("there is no program %d", c.number)
	}
	k := p.kernels[c.kernel]
	switch {
	case k == nil:
		return fmt.Errorf("program %d has no such kernel: it has %s", c.number, strings.Join(slices.Sorted(maps.Keys(p.kernels)), ", "))
	case k.params.count >= 0 && len(c.args) != k.params.count:
		return fmt.Errorf("%d arguments for a kernel that has %d", len(c.args), k.params.count)
	}
	if k.id == 0 {
		k.id = h.device.newID()
		r.createdKernels = append(r.createdKernels, k)
		if err := h.send(r, i, opClCreateKernel, &argsClCreateKernel{Program: p.built.id, KernelName: text{c.kernel, true}, Result: k.id}); err != nil {
			return err
		}
	}
	for n := range c.args {
		if err := r.setArg(i, k, n, &c.args[n]); err != nil {
			return fmt.Errorf("argument %d: %w", n, err)
		}
	}
	args := argsClEnqueueNDRangeKernel{CommandQueue: h.queue, Kernel: k.id, WorkDim: uint32(len(c.global)), GlobalWorkSize: c.global}
	if slices.ContainsFunc(c.local, func(n uint64) bool { return n != 0 }) {
		args.LocalWorkSize = c.local
	}
	return h.send(r, i, opClEnqueueNDRangeKernel, &args)
}

// The forms of an argument on the wire.
const (
	formBytes = iota
	formLocal
	formMem
)

// The address spaces of parameters, from CL/cl.h.
const (
	spaceGlobal   = 0x119B
	spaceLocal    = 0x119C
	spaceConstant = 0x119D
	spacePrivate  = 0x119E
)

// check returns an error unless an argument has the form that its parameter requires. Some drivers
// accept any value for a buffer's handle.
func (p *parameters) check(n int, a *arg) error {
	space := p.spaces[uint16(n)]
	switch {
	case (space == spaceGlobal || space == spaceConstant) && a.kind != argBuffer:
		return errors.New("the kernel wants a buffer")
	case space == spaceLocal && a.kind != argLocal:
		return errors.New("the kernel wants local memory")
	case space == spacePrivate && a.kind != argScalar:
		return errors.New("the kernel wants a value")
	}
	return nil
}

func (r *run) setArg(i int, k *kernel, n int, a *arg) error {
	if err := k.params.check(n, a); err != nil {
		return err
	}
	h, args := r.holder, argsClSetKernelArg{Kernel: k.id, ArgIndex: uint32(n)}
	switch a.kind {
	case argScalar:
		args.Form, args.ArgSize, args.Value = formBytes, uint64(len(a.bytes)), a.bytes
	case argLocal:
		args.Form, args.ArgSize = formLocal, a.size
	case argBuffer:
		b, err := h.bufferRange(a.number, 0, 0)
		if err == nil {
			err = r.zero(i, b)
		}
		if err != nil {
			return err
		}
		args.Form, args.ArgSize, args.Object = formMem, 8, b.id
	}
	return h.send(r, i, opClSetKernelArg, &args)
}
