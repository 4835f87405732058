package driver

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Alloc returns zeroed memory outside Go's heap, for data that a driver uses after a call returns.
// Free frees it.
func Alloc(size int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, max(size, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", size, err)
	}
	return m[:size:len(m)], nil
}

// Free frees memory from Alloc.
func Free(m []byte) {
	if cap(m) > 0 {
		_ = unix.Munmap(m[:cap(m)]) // fails only for memory that is not Alloc's
	}
}

// Address returns the address of b, 0 if b has no memory. b must not be on a goroutine's stack.
func Address(b []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// Bytes returns size bytes of a driver's memory at addr.
func Bytes(addr uintptr, size int) []byte {
	if addr == 0 || size <= 0 {
		return nil
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), size)
}

// String copies the NUL-terminated string at addr, at most limit bytes.
func String(addr uintptr, limit int) string {
	if addr == 0 {
		return ""
	}
	n := 0
	for n < limit && Bytes(addr+uintptr(n), 1)[0] != 0 {
		n++
	}
	return string(Bytes(addr, n))
}

// Frame is memory for the small data of a call: out-parameters, arrays, names. It lies outside Go's
// heap and is reused after Reset. Only one goroutine may use it.
type Frame struct {
	mem  []byte
	used int
	more [][]byte
}

// frameSize suffices for any ordinary call.
const frameSize = 64 << 10

// NewFrame creates a frame. Close frees it.
func NewFrame() (*Frame, error) {
	m, err := Alloc(frameSize)
	return &Frame{mem: m}, err
}

// Bytes returns n zeroed bytes, aligned to 16.
func (f *Frame) Bytes(n int) ([]byte, error) {
	size := (n + 15) &^ 15
	if size > len(f.mem)-f.used {
		m, err := Alloc(n)
		if err == nil {
			f.more = append(f.more, m)
		}
		return m, err
	}
	b := f.mem[f.used : f.used+n : f.used+size]
	f.used += size
	clear(b)
	return b, nil
}

// Reset frees all memory that the frame has returned.
func (f *Frame) Reset() {
	f.used = 0
	for _, m := range f.more {
		Free(m)
	}
	f.more = f.more[:0]
}

// Close frees the frame.
func (f *Frame) Close() {
	f.Reset()
	Free(f.mem)
	f.mem = nil
}
