package driver

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/outboard-run/outboard"
)

// MaxArgs is the maximum number of a call's arguments.
const MaxArgs = 16

// Library is a loaded driver.
type Library struct {
	name   string
	handle uintptr
	frames sync.Pool
}

// Open loads the library of the given name as the system's loader finds it. Call Clean first, so
// that the loader does not find Outboard's own library.
func Open(name string) (*Library, error) {
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, &outboard.Error{
			Op:   "load driver " + name,
			Kind: outboard.NoDevice,
			Err:  fmt.Errorf("%w (install the system's loader for this API and a driver, for OpenCL the packages ocl-icd-libopencl1 and pocl-opencl-icd or a vendor's)", err),
		}
	}
	l := &Library{name: name, handle: handle}
	l.frames.New = func() any { return new([MaxArgs]uintptr) }
	return l, nil
}

// Lookup returns the address of a function, or 0 if the library lacks it.
func (l *Library) Lookup(function string) uintptr {
	addr, err := purego.Dlsym(l.handle, function)
	if err != nil {
		return 0
	}
	return addr
}

// Call calls the function at addr. Only integers and pointers may be passed.
func (l *Library) Call(addr uintptr, args ...uintptr) uintptr {
	// SyscallN makes its argument slice escape; a pooled slice costs no allocation per call.
	frame := l.frames.Get().(*[MaxArgs]uintptr)
	n := copy(frame[:], args)
	r, _, _ := purego.SyscallN(addr, frame[:n]...)
	l.frames.Put(frame)
	return r
}

// Table contains the functions of an API, by number. Its zero value has none.
type Table struct {
	library   *Library
	names     []string
	addresses []uintptr
	fake      func(function int, args []uintptr) uintptr
}

// Bind looks up the named functions; functions that the library lacks are absent from the table.
func (l *Library) Bind(names []string) *Table {
	t := &Table{library: l, names: names, addresses: make([]uintptr, len(names))}
	for i, name := range names {
		if name != "" {
			t.addresses[i] = l.Lookup(name)
		}
	}
	return t
}

// Without returns the table without the named functions.
func (t *Table) Without(names []string) *Table {
	less := *t
	less.addresses = slices.Clone(t.addresses)
	for i, name := range t.names {
		if slices.Contains(names, name) {
			less.addresses[i] = 0
		}
	}
	return &less
}

// Fake returns a table whose calls all go to f: a driver in Go, for tests.
func Fake(names []string, f func(function int, args []uintptr) uintptr) *Table {
	t := &Table{names: names, addresses: make([]uintptr, len(names)), fake: f}
	for i := range names {
		t.addresses[i] = 1
	}
	return t
}

// Has reports whether the driver has the function.
func (t *Table) Has(function int) bool {
	return function >= 0 && function < len(t.addresses) && t.addresses[function] != 0
}

// Name returns the function's name.
func (t *Table) Name(function int) string { return t.names[function] }

// Call calls a function that the driver has.
func (t *Table) Call(function int, args ...uintptr) uintptr {
	if t.fake != nil {
		return t.fake(function, append([]uintptr(nil), args...))
	}
	return t.library.Call(t.addresses[function], args...)
}
