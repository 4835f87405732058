package opencl

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/driver"
)

// CompileOptions configure the execution of a recipe.
type CompileOptions struct {
	Driver     *driver.Table
	Device     int
	DeviceName string
	// IncludeDir is the folder for header files, as for a session.
	IncludeDir string
	// Binaries has the driver compile kernel number Kernel as the program's binaries contain it.
	Binaries bool
	Kernel   int
}

// Compile builds a program as its recipe says and, if launch is not nil, has the driver compile a
// kernel for that launch. The caller ensures that the driver can't execute the compiled code: PoCL
// ends the process then.
func Compile(opts CompileOptions, program *ProgramRecipe, launch *LaunchRecipe) error {
	frame, err := driver.NewFrame()
	if err != nil {
		return err
	}
	defer frame.Close()
	found, err := listDevices(opts.Driver)
	if err != nil {
		return err
	}
	if opts.Device < 0 || opts.Device >= len(found) || opts.DeviceName != "" && found[opts.Device].info.Name != opts.DeviceName {
		return outboard.Errorf(outboard.NoDevice, "compile", "device %d is not what it was", opts.Device)
	}
	d := found[opts.Device]
	frame.Reset()
	c := &compiler{drv: functionsOf(opts.Driver, d.platform, frame), frame: frame, device: d.device}
	frame.Reset()
	if err := c.build(opts.IncludeDir, program); err != nil {
		return errors.Join(ErrNoKernel, err)
	}
	if opts.Binaries {
		return c.compileKernel(opts.Kernel)
	}
	if launch == nil {
		return nil
	}
	return c.launch(launch)
}

// compilesAtLaunch reports whether a platform's driver compiles kernels when they are
// launched.
func compilesAtLaunch(platform string) bool {
	return strings.Contains(platform, "Portable Computing Language")
}

// compiler calls a driver in a process that does nothing else: the process's end frees its objects.
type compiler struct {
	drv                      *driver.Table
	frame                    *driver.Frame
	device, context, program uintptr
	source                   []byte
	options                  text
	// described is the kernel of a program that was built with descriptions of arguments, or 0.
	described uintptr
}

// bytes copies b to memory that the driver can read.
func (c *compiler) bytes(b []byte) uintptr {
	m, err := c.frame.Bytes(len(b) + 1)
	if err != nil {
		return 0
	}
	copy(m, b)
	return driver.Address(m)
}

func (c *compiler) words(words ...uint64) uintptr {
	if words == nil {
		return 0
	}
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return c.bytes(b)
}

// create calls a function that returns a new object.
func (c *compiler) create(function string, fn int, args ...uintptr) (uintptr, error) {
	status := c.bytes(make([]byte, 4))
	object := c.drv.Call(fn, append(args, status)...)
	if object == 0 {
		return 0, statusError(function, int32(binary.LittleEndian.Uint32(driver.Bytes(status, 4))))
	}
	return object, nil
}

func (c *compiler) check(function string, fn int, args ...uintptr) error {
	if status := int32(c.drv.Call(fn, args...)); status != clSuccess {
		return statusError(function, status)
	}
	return nil
}

func (c *compiler) build(includeDir string, p *ProgramRecipe) (err error) {
	c.source = p.Source
	if p.Options != nil {
		c.options = text{value: *p.Options, present: true}
	}
	in := &includes{dir: includeDir, output: &output{}}
	if c.options, err = in.install(c.options, p.Includes); err != nil {
		return err
	}
	if c.context, err = c.create("context", fnClCreateContext, 0, 1, c.words(uint64(c.device)), 0, 0); err != nil {
		return err
	}
	c.program, err = c.buildProgram(c.options)
	return err
}

// buildProgram builds the source with the given options.
func (c *compiler) buildProgram(options text) (uintptr, error) {
	source, length := c.words(uint64(c.bytes(c.source))), c.words(uint64(len(c.source)))
	program, err := c.create("program", fnClCreateProgramWithSource, c.context, 1, source, length)
	if err != nil {
		return 0, err
	}
	list := uintptr(0)
	if options.present {
		list = c.bytes([]byte(options.value))
	}
	return program, c.check("build", fnClBuildProgram, program, 1, c.words(uint64(c.device)), list, 0, 0)
}

// launch compiles a kernel for a launch: with arguments of the same forms and sizes, but without
// their contents.
func (c *compiler) launch(l *LaunchRecipe) error {
	kernel, err := c.create("kernel", fnClCreateKernel, c.program, c.bytes([]byte(l.Kernel)))
	if err != nil {
		return err
	}
	for i, a := range l.Args {
		if err := c.setArg(kernel, uintptr(i), a); err != nil {
			return err
		}
	}
	return c.launchKernel(kernel, l)
}

// dummySize is the size of the buffers that replace those of a launch.
const dummySize = 4096

func (c *compiler) setArg(kernel, index uintptr, a ArgRecipe) error {
	var objects []func() (uintptr, error)
	switch a.Form {
	case formLocal:
		return c.check("argument", fnClSetKernelArg, kernel, index, uintptr(a.Size), 0)
	case formMem:
		// PoCL accepts a buffer for an image, and then refuses the launch.
		if strings.HasPrefix(c.argType(kernel, index), "image") {
			objects = append(objects, c.image)
			break
		}
		objects = append(objects, c.buffer, c.image)
	case formSampler:
		objects = append(objects, func() (uintptr, error) {
			const clampToEdge, nearest = 0x1131, 0x1140
			return c.create("sampler", fnClCreateSampler, c.context, clFalse, clampToEdge, nearest)
		})
	case formQueue:
		return statusError("argument", clInvalidValue)
	default:
		return c.check("argument", fnClSetKernelArg, kernel, index, uintptr(a.Size), c.bytes(make([]byte, a.Size)))
	}
	var err error
	for _, object := range objects {
		handle, failed := object()
		if err = failed; err != nil {
			continue
		}
		if err = c.check("argument", fnClSetKernelArg, kernel, index, 8, c.words(uint64(handle))); err == nil {
			return nil
		}
	}
	return err
}

func (c *compiler) buffer() (uintptr, error) {
	return c.create("buffer", fnClCreateBuffer, c.context, 1, dummySize, 0)
}

// image creates an image of one RGBA pixel.
func (c *compiler) image() (uintptr, error) {
	const rgba, unormInt8, image2D = 0x10B5, 0x10D2, 0x10F1
	format := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, rgba), unormInt8)
	desc := make([]byte, 72) // cl_image_desc
	binary.LittleEndian.PutUint32(desc, image2D)
	binary.LittleEndian.PutUint64(desc[8:], 1)
	binary.LittleEndian.PutUint64(desc[16:], 1)
	return c.create("image", fnClCreateImage, c.context, 1, c.bytes(format), c.bytes(desc), 0)
}
