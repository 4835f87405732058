//go:build !wasip1

package guesttest

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A Device runs kernels that are written in Go, since there is no compiler for OpenCL C: a
// program's source is ignored, and every program has all kernels of the device.
type Device struct {
	// Info is the device's description in JSON.
	Info string
	// Kernels are the kernels by name.
	Kernels map[string]func(Launch)

	holders map[int32]*holder
}

// A Launch is one launch of a kernel. The kernel is called once for all items.
type Launch struct {
	// Global and Local are the sizes of the grid and of its groups; Local is empty if the driver
	// may choose.
	Global, Local []int
	// Args are the arguments: the contents of a buffer, which the kernel may change, the
	// bytes of a scalar, or local memory of the requested size.
	Args [][]byte
}

// A holder has the buffers and programs of one import.
type holder struct {
	buffers  map[uint32][]byte
	programs map[uint32]bool
}

// Device returns the device of that name, and allows the function to import it.
func (h *Host) Device(name string) *Device {
	if h.devices[name] == nil {
		h.devices[name] = &Device{Info: "{}", Kernels: map[string]func(Launch){}, holders: map[int32]*holder{}}
	}
	return h.devices[name]
}

func (d *Device) drop(handle int32) { delete(d.holders, handle) }

// do executes a list of commands, as specified in docs/design/0007.
func (d *Device) do(handle int32, list []byte, memory func(at, size uint32) ([]byte, bool)) ([]byte, error) {
	if d.holders[handle] == nil {
		d.holders[handle] = &holder{map[uint32][]byte{}, map[uint32]bool{}}
	}
	w := work{device: d, holder: d.holders[handle], memory: memory, rest: list}
	for n := 0; len(w.rest) > 0; n++ {
		if err := w.command(); err != nil {
			return nil, fmt.Errorf("command %d: %w", n, err)
		}
	}
	return w.read, nil
}

// work is a list of commands in execution.
type work struct {
	device *Device
	holder *holder
	memory func(at, size uint32) ([]byte, bool)
	rest   []byte
	short  bool
	read   []byte
}

var errList = errors.New("it is cut short, or unknown")

func (w *work) next(n int) []byte {
	if n < 0 || n > len(w.rest) {
		w.short, w.rest = true, nil
		return make([]byte, 8)
	}
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}

func (w *work) u32() uint32  { return binary.LittleEndian.Uint32(w.next(4)) }
func (w *work) u64() uint64  { return binary.LittleEndian.Uint64(w.next(8)) }
func (w *work) text() []byte { return w.next(int(w.u32())) }

func (w *work) command() error {
	code, number := w.next(1)[0], w.u32()
	switch code {
	case 1:
		return w.buffer(number)
	case 2:
		offset, data := w.u64(), w.text()
		return w.move(number, offset, data, true)
	case 3:
		w.text()
		w.text()
		w.holder.programs[number] = true
	case 4:
		return w.launch(number)
	case 5:
		offset := w.u64()
		data := make([]byte, w.u32())
		err := w.move(number, offset, data, false)
		w.read = append(w.read, data...)
		return err
	case 6:
		delete(w.holder.buffers, number)
	case 7, 8:
		offset, at, size := w.u64(), w.u32(), w.u32()
		data, ok := w.memory(at, size)
		if !ok {
			return errors.New("no such memory")
		}
		return w.move(number, offset, data, code == 7)
	default:
		return errList
	}
	return w.err()
}

func (w *work) err() error {
	if w.short {
		return errList
	}
	return nil
}

func (w *work) buffer(number uint32) error {
	size := w.u64()
	if w.holder.buffers[number] != nil || size == 0 || size > 1<<30 {
		return fmt.Errorf("buffer %d: it is there, or has no size that a buffer may have", number)
	}
	w.holder.buffers[number] = make([]byte, size)
	return w.err()
}

// move copies data into or out of a part of a buffer.
func (w *work) move(number uint32, offset uint64, data []byte, in bool) error {
	b := w.holder.buffers[number]
	switch size := uint64(len(data)); {
	case w.short:
		return errList
	case size > uint64(len(b)) || offset > uint64(len(b))-size:
		return fmt.Errorf("%d bytes at %d lie outside of buffer %d", size, offset, number)
	case in:
		copy(b[offset:], data)
	default:
		copy(data, b[offset:])
	}
	return nil
}

func (w *work) launch(program uint32) error {
	name := string(w.text())
	l := Launch{}
	dims := int(w.next(1)[0])
	for i := range 2 * dims {
		if n := int(w.u64()); i < dims {
			l.Global = append(l.Global, n)
		} else {
			l.Local = append(l.Local, n)
		}
	}
	for range w.next(1)[0] {
		if err := w.argument(&l); err != nil {
			return fmt.Errorf("launch of %s: %w", name, err)
		}
	}
	run := w.device.Kernels[name]
	switch {
	case w.short:
		return errList
	case run == nil || !w.holder.programs[program]:
		return fmt.Errorf("program %d has no kernel %s", program, name)
	}
	run(l)
	return nil
}

func (w *work) argument(l *Launch) error {
	switch w.next(1)[0] {
	case 1:
		l.Args = append(l.Args, w.text())
	case 2:
		number := w.u32()
		b := w.holder.buffers[number]
		if b == nil {
			return fmt.Errorf("there is no buffer %d", number)
		}
		l.Args = append(l.Args, b)
	case 3:
		l.Args = append(l.Args, make([]byte, min(w.u64(), 1<<20)))
	default:
		return errList
	}
	return w.err()
}
