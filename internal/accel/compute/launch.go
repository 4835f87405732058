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
	b, err := r.builtOf(i, c)
	if err != nil {
		return err
	}
	p := &program{built: b, kernels: make(map[string]*kernel, len(b.kernels))}
	for name, args := range b.kernels {
		p.kernels[name] = &kernel{args: args}
	}
	h.programs[c.number] = p
	return nil
}

// build builds a program on the device. Of one that can't be built nothing is left.
func (r *run) build(i int, c *Command, b *built) error {
	h := r.holder
	b.id = h.device.id()
	args := argsClCreateProgramWithSource{Context: h.device.context, Source: []byte(c.source), Result: b.id}
	if err := h.send(r, i, opClCreateProgramWithSource, &args); err != nil {
		return err
	}
	w, err := h.ask(r, opClBuildProgram, &argsClBuildProgram{Program: b.id, Options: text{c.options, c.options != ""}}, owner{r, i}, nil)
	if err != nil {
		return err
	}
	select {
	case <-w.done:
	case <-r.ctx.Done():
		r.giveUp([]*wait{w})
		return context.Cause(r.ctx)
	}
	body, err := w.result()
	log, wrong := b.learn(body)
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

// mostLog is how much of a build's log an error has.
const mostLog = 16 << 10

// learn reads what the worker tells of a build.
func (b *built) learn(body []byte) (log string, err error) {
	var reply replyClBuildProgram
	if len(body) == 0 {
		return "", nil
	}
	if err := reply.decode(body); err != nil {
		return "", outboard.Errorf(outboard.Protocol, "session", "a build's reply: %w", err)
	}
	var names []string
	args := map[uint64]int{}
	err = eachFact(reply.Facts, func(f fact) {
		switch {
		case f.op == opClGetProgramBuildInfo && f.param == programBuildLog:
			log = strings.TrimSpace(strings.ToValidUTF8(f.text(), "?"))
			log = log[:min(len(log), mostLog)]
		case f.op == opClGetProgramBuildInfo && f.param == programVariables:
			b.own = f.word() > 0 // what one holder leaves there another one would find
		case f.op == opClGetProgramInfo && f.param == programKernelNames && f.text() != "":
			names = strings.Split(f.text(), ";")
		case f.op == opClGetKernelInfo && f.param == kernelNumArgs:
			args[f.object] = int(f.word() & 0xffffffff)
		}
	})
	b.kernels = make(map[string]int, len(names))
	for i, name := range names {
		n, known := args[uint64(i)]
		if !known {
			n = -1
		}
		b.kernels[name] = n
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
	case k.args >= 0 && len(c.args) != k.args:
		return fmt.Errorf("%d arguments for a kernel that has %d", len(c.args), k.args)
	}
	if k.id == 0 {
		k.id = h.device.id()
		r.kernels = append(r.kernels, k)
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

func (r *run) setArg(i int, k *kernel, n int, a *arg) error {
	h, args := r.holder, argsClSetKernelArg{Kernel: k.id, ArgIndex: uint32(n)}
	switch a.kind {
	case argScalar:
		args.Form, args.ArgSize, args.Value = formBytes, uint64(len(a.bytes)), a.bytes
	case argLocal:
		args.Form, args.ArgSize = formLocal, a.size
	case argBuffer:
		b, err := h.find(a.number, 0, 0)
		if err == nil {
			err = r.clean(i, b)
		}
		if err != nil {
			return err
		}
		args.Form, args.ArgSize, args.Object = formMem, 8, b.id
	}
	return h.send(r, i, opClSetKernelArg, &args)
}
