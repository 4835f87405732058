package opencl

import (
	"encoding/binary"
	"errors"
)

// ErrNoKernel reports that a program has no kernel of that number, or cannot be built.
var ErrNoKernel = errors.New("compile: no such kernel")

// GenericKernels is the environment variable that makes PoCL compile launched kernels for work
// groups of any size. A program's binaries contain kernels in this form.
const GenericKernels = "POCL_WORK_GROUP_SPECIALIZATION=0"

const (
	clKernelArgInfoNotAvailable  = -19
	clKernelFunctionName         = 0x1190
	clKernelCompileWorkGroupSize = 0x11B1
	clKernelArgAddressQualifier  = 0x1196
	clKernelArgTypeName          = 0x1198
	clKernelArgAddressLocal      = 0x119C
)

// compileKernel has the driver compile a kernel of the program, numbered from 0, by launching it.
// Querying the program's binaries instead would compile only the first kernel: PoCL loads each
// kernel before it compiles the next.
func (c *compiler) compileKernel(number int) error {
	kernels, status := handleList(c.drv, c.frame, fnClCreateKernelsInProgram, c.program)
	if status != clSuccess || number < 0 || number >= len(kernels) {
		return ErrNoKernel
	}
	kernel := kernels[number]
	status, count := query(c.drv, c.frame, fnClGetKernelInfo, kernel, clKernelNumArgs)
	if status != clSuccess || len(count) < 4 {
		return statusError("kernel", status)
	}
	arguments := min(binary.LittleEndian.Uint32(count), maxRecipeArgs)
	for i := range uintptr(arguments) {
		if err := c.setAnyArg(kernel, i); err != nil {
			return err
		}
	}
	return c.launchKernel(kernel, &LaunchRecipe{Global: c.requiredSize(kernel), Local: c.requiredSize(kernel)})
}

// requiredSize returns the work-group size that the kernel's source requires, or a size of one
// item.
func (c *compiler) requiredSize(kernel uintptr) []uint64 {
	_, b := query(c.drv, c.frame, fnClGetKernelWorkGroupInfo, kernel, c.device, clKernelCompileWorkGroupSize)
	if len(b) != 3*8 || firstWord(b) == 0 {
		return []uint64{1}
	}
	return []uint64{firstWord(b), firstWord(b[8:]), firstWord(b[16:])}
}

// setAnyArg sets an argument to any value that the driver accepts for it.
func (c *compiler) setAnyArg(kernel, index uintptr) (err error) {
	space := c.argInfo(kernel, index, clKernelArgAddressQualifier)
	switch {
	case len(space) >= 4 && binary.LittleEndian.Uint32(space) == clKernelArgAddressLocal:
		return c.setArg(kernel, index, ArgRecipe{Form: formLocal, Size: 64})
	case c.argType(kernel, index) == "sampler_t":
		return c.setArg(kernel, index, ArgRecipe{Form: formSampler})
	}
	if err = c.setArg(kernel, index, ArgRecipe{Form: formMem}); err == nil {
		return nil
	}
	for _, size := range []uint64{4, 8, 2, 1, 16, 32, 12, 64, 128, 3, 6, 24, 48} {
		if err = c.setArg(kernel, index, ArgRecipe{Form: formBytes, Size: size}); err == nil {
			return nil
		}
	}
	return err
}

// argType returns the name of an argument's type, "" where the driver does not know it.
func (c *compiler) argType(kernel, index uintptr) string {
	return cString(c.argInfo(kernel, index, clKernelArgTypeName))
}

// argInfo returns what the driver knows of an argument, nil if it knows nothing. Drivers have the
// information only for programs built with -cl-kernel-arg-info. A program built without the option
// is built a second time with it: with the option in the first build, the driver's cache would
// store the kernel under another name.
func (c *compiler) argInfo(kernel, index, param uintptr) []byte {
	status, value := query(c.drv, c.frame, fnClGetKernelArgInfo, kernel, index, param)
	if status == clKernelArgInfoNotAvailable && c.describe(kernel) == nil {
		_, value = query(c.drv, c.frame, fnClGetKernelArgInfo, c.described, index, param)
	}
	return value
}

// describe creates the kernel of the same name in a program built with -cl-kernel-arg-info.
func (c *compiler) describe(kernel uintptr) error {
	if c.described != 0 {
		return nil
	}
	status, name := query(c.drv, c.frame, fnClGetKernelInfo, kernel, clKernelFunctionName)
	if status != clSuccess {
		return statusError("kernel", status)
	}
	program, err := c.buildProgram(text{value: c.options.value + " -cl-kernel-arg-info", present: true})
	if err != nil {
		return err
	}
	c.described, err = c.create("kernel", fnClCreateKernel, program, c.bytes(name))
	return err
}

// launchKernel launches a kernel whose arguments are set, and waits for it.
func (c *compiler) launchKernel(kernel uintptr, l *LaunchRecipe) error {
	queue, err := c.create("queue", fnClCreateCommandQueue, c.context, c.device, 0)
	if err != nil {
		return err
	}
	err = c.check("launch", fnClEnqueueNDRangeKernel, queue, kernel, uintptr(len(l.Global)), c.words(l.Offset...), c.words(l.Global...),
		c.words(l.Local...), 0, 0, 0)
	if err != nil {
		return err
	}
	return c.check("finish", fnClFinish, queue)
}
