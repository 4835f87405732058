package guest

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"
)

// A Device is an accelerator of the pool that runs kernels in OpenCL C. Commands are recorded, and
// sent together by a read or by Wait, which return their errors: so a chain of kernels costs one
// round trip to the device.
//
//	gpu, err := guest.ImportDevice("gpu")
//	...
//	program := gpu.Program(`kernel void add(global float *a, float n) { a[get_global_id(0)] += n; }`)
//	numbers := gpu.BufferOf(data)
//	program.Launch("add", guest.Items(len(data)/4), numbers, float32(2))
//	sums, err := numbers.Read(0, len(data))
//
// Buffers and programs live until the call ends, or until Close. A Device is not safe for
// concurrent use.
type Device struct {
	Resource
	list     []byte   // recorded commands
	memory   [][]byte // memory to which the commands refer
	commands int
	last     uint32 // number of a buffer or program
	err      error  // the first error in the recorded commands
}

// ImportDevice imports a device of the app: a lease of one of the pool's matching devices. It waits
// in the queue for devices. The error names the missing line of the manifest, or the leases that
// hold the devices.
func ImportDevice(name string) (*Device, error) {
	d := &Device{Resource: Resource{name: "device:" + name}}
	_, err := d.open()
	return d, err
}

// Info returns the device's description in JSON: see DeviceInfo.
func (d *Device) Info() ([]byte, error) {
	handle, err := d.open()
	if err != nil {
		return nil, err
	}
	return hostDevice(handle)
}

// DeviceInfo is the content of Info. Sizes are in bytes.
type DeviceInfo struct {
	// Device is the device's ID in the pool, NODE/API/INDEX.
	Device string `json:"device"`
	Node   string `json:"node"`
	// Type is gpu, cpu, accelerator or custom.
	Type    string `json:"type"`
	Name    string `json:"name"`
	Vendor  string `json:"vendor"`
	Version string `json:"version"`
	Units   int    `json:"units"`
	// Memory bounds the lease's allocations, Buffer one buffer, LocalMemory the local
	// memory of a work group, and WorkGroup its number of items.
	Memory      uint64 `json:"memory"`
	Buffer      uint64 `json:"buffer"`
	LocalMemory uint64 `json:"local_memory"`
	WorkGroup   int    `json:"work_group"`
}

// The commands, as numbered in docs/design/0007.
const (
	commandBuffer byte = iota + 1
	commandWrite
	commandProgram
	commandLaunch
	commandRead
	commandFree
	commandWriteFrom
	commandReadTo
)

// The kinds of a kernel's arguments.
const (
	argumentScalar byte = iota + 1
	argumentBuffer
	argumentLocal
)

const (
	// inlined bounds data that is copied into the list of commands.
	inlined = 32 << 10
	// mostNoted is the size from which a list of commands is sent.
	mostNoted    = 1 << 20
	mostCommands = 1 << 12
)

// Buffer allocates a buffer on the device, filled with zeros.
func (d *Device) Buffer(size int) *Buffer {
	b := &Buffer{device: d, number: d.number(), size: size}
	d.begin(commandBuffer, b.number)
	d.u64(uint64(size))
	return b
}

// BufferOf allocates a buffer with these contents.
func (d *Device) BufferOf(data []byte) *Buffer {
	b := d.Buffer(len(data))
	b.Write(0, data)
	return b
}

// Program builds a program in OpenCL C. The options are those of OpenCL's compiler.
func (d *Device) Program(source string, options ...string) *Program {
	p := &Program{device: d, number: d.number()}
	d.begin(commandProgram, p.number)
	d.text(source)
	d.text(strings.Join(options, " "))
	return p
}

// Wait sends the recorded commands and waits until the device has executed them. If a command
// fails, the other commands of the list are discarded, and the buffers that the list allocates do
// not exist.
func (d *Device) Wait() error {
	_, err := d.send()
	return err
}

// Close releases the device with its buffers and programs, and discards recorded commands.
func (d *Device) Close() {
	d.forget()
	d.Resource.Close()
}

func (d *Device) forget() { d.list, d.memory, d.commands, d.err = d.list[:0], nil, 0, nil }

func (d *Device) send() ([]byte, error) {
	defer d.forget()
	if d.err != nil || d.commands == 0 {
		return nil, d.err
	}
	handle, err := d.open()
	if err != nil {
		return nil, err
	}
	return hostDo(handle, d.list, d.memory)
}

func (d *Device) number() uint32 {
	d.last++
	return d.last
}

// begin records a command. If the list is large already, begin sends it first.
func (d *Device) begin(command byte, number uint32) {
	if d.err == nil && (len(d.list) > mostNoted || d.commands >= mostCommands) {
		if err := d.Wait(); err != nil {
			d.err = err
		}
	}
	d.commands++
	d.list = append(d.list, command)
	d.u32(number)
}

func (d *Device) u32(n uint32) { d.list = binary.LittleEndian.AppendUint32(d.list, n) }
func (d *Device) u64(n uint64) { d.list = binary.LittleEndian.AppendUint64(d.list, n) }

func (d *Device) text(s string) {
	d.u32(uint32(len(s)))
	d.list = append(d.list, s...)
}

// appendAddress records the address of bytes, which must not move until they are sent.
func (d *Device) appendAddress(b []byte) {
	d.memory = append(d.memory, b)
	d.u32(addressOf(d.memory))
	d.u32(uint32(len(b)))
}

func (d *Device) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// A Buffer is a buffer in a device's memory.
type Buffer struct {
	device *Device
	number uint32
	size   int
}

// Size returns the size in bytes.
func (b *Buffer) Size() int { return b.size }

// Write replaces a part of the buffer. The caller may change data afterwards.
func (b *Buffer) Write(offset int, data []byte) {
	d := b.device
	if len(data) <= inlined {
		d.begin(commandWrite, b.number)
		d.u64(uint64(offset))
		d.text(string(data))
		return
	}
	d.begin(commandWriteFrom, b.number)
	d.u64(uint64(offset))
	d.appendAddress(data)
	if err := d.Wait(); err != nil {
		d.fail(err)
	}
}

// Read executes all recorded commands and returns a part of the buffer.
func (b *Buffer) Read(offset, size int) ([]byte, error) {
	data := make([]byte, max(size, 0))
	return data, b.ReadInto(offset, data)
}

// ReadInto executes all recorded commands and copies a part of the buffer into data, which
// may be memory of Alloc.
func (b *Buffer) ReadInto(offset int, to []byte) error {
	d := b.device
	d.begin(commandReadTo, b.number)
	d.u64(uint64(offset))
	d.appendAddress(to)
	return d.Wait()
}

// Free releases the buffer's memory.
func (b *Buffer) Free() { b.device.begin(commandFree, b.number) }

// A Program is a built program, whose kernels can be launched.
type Program struct {
	device *Device
	number uint32
}

// A Grid is the number of work items in one to three dimensions.
type Grid struct{ global, local []int }

// Items returns a grid with the given number of items in each dimension. The driver chooses the
// groups.
func Items(global ...int) Grid { return Grid{global: global} }

// Groups returns the same grid with groups of the given number of items in each dimension.
func (g Grid) Groups(local ...int) Grid { return Grid{g.global, local} }

// Local is a kernel's argument: the given number of bytes of local memory for each work group.
type Local int

// Launch runs a kernel for each item. Arguments are a *Buffer, a Local, an int8 to int64,
// uint8 to uint64, float32 or float64, or a []byte with the representation of the kernel's
// parameter on the device. An int is an error, since its size is not defined for kernels.
func (p *Program) Launch(kernel string, grid Grid, args ...any) {
	d := p.device
	if n := len(grid.global); n < 1 || n > 3 || len(grid.local) != 0 && len(grid.local) != n || len(args) > 255 {
		d.fail(errors.New("launch " + kernel + ": want one to three dimensions, groups in as many, and at most 255 arguments"))
		return
	}
	d.begin(commandLaunch, p.number)
	d.text(kernel)
	d.list = append(d.list, byte(len(grid.global)))
	for _, n := range grid.global {
		d.u64(uint64(n))
	}
	for i := range grid.global {
		if len(grid.local) == 0 {
			d.u64(0)
		} else {
			d.u64(uint64(grid.local[i]))
		}
	}
	d.list = append(d.list, byte(len(args)))
	for i, a := range args {
		if !d.argument(a) {
			d.fail(errors.New("launch " + kernel + ": argument " + strconv.Itoa(i) + " is of a type that no kernel knows: see Launch"))
		}
	}
}

func (d *Device) argument(a any) bool {
	switch a := a.(type) {
	case *Buffer:
		d.list = append(d.list, argumentBuffer)
		d.u32(a.number)
		return true
	case Local:
		d.list = append(d.list, argumentLocal)
		d.u64(uint64(a))
		return true
	}
	b, ok := scalar(a)
	d.list = append(d.list, argumentScalar)
	d.text(string(b))
	return ok
}

func scalar(a any) ([]byte, bool) {
	little := binary.LittleEndian
	switch a := a.(type) {
	case []byte:
		return a, true
	case int8:
		return []byte{byte(a)}, true
	case uint8:
		return []byte{a}, true
	case int16:
		return little.AppendUint16(nil, uint16(a)), true
	case uint16:
		return little.AppendUint16(nil, a), true
	case int32:
		return little.AppendUint32(nil, uint32(a)), true
	case uint32:
		return little.AppendUint32(nil, a), true
	case int64:
		return little.AppendUint64(nil, uint64(a)), true
	case uint64:
		return little.AppendUint64(nil, a), true
	case float32:
		return little.AppendUint32(nil, math.Float32bits(a)), true
	case float64:
		return little.AppendUint64(nil, math.Float64bits(a)), true
	}
	return nil, false
}
