// Package image holds the memory of an initialised WebAssembly instance and maps it
// copy-on-write into other instances.
package image

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/shm/memfd"
)

// PageSize is the page size of the machine, not that of WebAssembly.
const PageSize = 4096

// Image is immutable memory: a memfd that is sealed, since a write would change all copies.
type Image struct {
	file   *os.File
	size   int
	view   []byte   // the file, for copying back
	filled []uint64 // a bitmap of the pages that are not all zero
	pages  int      // the number of pages that are not all zero
	window Window
	once   sync.Once
}

// Window is a page-aligned part of memory that the image does not cover: it is zero, or
// other files are mapped there. A window of length zero means none.
type Window struct{ From, To int }

func (w Window) valid(size int) bool {
	return 0 <= w.From && w.From <= w.To && w.To <= size && w.From%PageSize == 0 && w.To%PageSize == 0
}

// New copies memory except for the window. The length must be a multiple of PageSize.
func New(memory []byte, w Window) (*Image, error) {
	switch {
	case len(memory)%PageSize != 0:
		return nil, fmt.Errorf("image: %d bytes are not whole pages", len(memory))
	case !w.valid(len(memory)):
		return nil, fmt.Errorf("image: no window of %d bytes can go from %d to %d", len(memory), w.From, w.To)
	}
	if os.Getpagesize() != PageSize {
		return nil, fmt.Errorf("image: memory pages of %d bytes: only %d can be handled", os.Getpagesize(), PageSize)
	}
	i := &Image{size: len(memory), window: w, filled: make([]uint64, (len(memory)/PageSize+63)/64)}
	if i.size == 0 {
		return i, nil
	}
	if err := i.make(memory); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	return i, nil
}

func (i *Image) make(memory []byte) error {
	file, err := memfd.NewImmutable("outboard-image", func(f *os.File) error { return i.fill(f, memory) })
	if err != nil {
		return err
	}
	view, err := unix.Mmap(int(file.Fd()), 0, i.size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("map: %w", err)
	}
	i.file, i.view = file, view
	return nil
}

func (i *Image) fill(f *os.File, memory []byte) error {
	if err := f.Truncate(int64(i.size)); err != nil {
		return err
	}
	for _, part := range [][2]int{{0, i.window.From}, {i.window.To, i.size}} {
		if err := i.write(f, memory, part[0], part[1]); err != nil {
			return err
		}
	}
	return nil
}

// write writes the pages that are not all zero.
func (i *Image) write(f *os.File, memory []byte, from, to int) error {
	var zero [PageSize]byte
	for at := from; at < to; at += PageSize {
		page := memory[at : at+PageSize]
		if bytes.Equal(page, zero[:]) {
			continue
		}
		if _, err := f.WriteAt(page, int64(at)); err != nil {
			return err
		}
		n := at / PageSize
		i.filled[n/64] |= 1 << (n % 64)
		i.pages++
	}
	return nil
}

// Size returns the length of the memory in bytes.
func (i *Image) Size() int { return i.size }

// Resident returns the size in bytes of the pages that are not all zero.
func (i *Image) Resident() int { return i.pages * PageSize }

// Bytes returns the memory, which is read-only.
func (i *Image) Bytes() []byte { return i.view }

// Close releases the image. Ranges that have it loaded stay valid.
func (i *Image) Close() error {
	i.once.Do(func() {
		if i.file != nil {
			_ = unix.Munmap(i.view)
			_ = i.file.Close()
		}
	})
	return nil
}

// restore overwrites a page with the image's bytes at offset at.
func (i *Image) restore(page []byte, at int) {
	if n := at / PageSize; i.filled[n/64]>>(n%64)&1 != 0 {
		copy(page, i.view[at:])
	} else {
		clear(page)
	}
}

// mapOver maps the image over the beginning of base, private and writable, except for its
// window.
func (i *Image) mapOver(base unsafe.Pointer) error {
	for _, part := range [][2]int{{0, i.window.From}, {i.window.To, i.size}} {
		if part[0] == part[1] {
			continue
		}
		_, err := unix.MmapPtr(int(i.file.Fd()), int64(part[0]), unsafe.Add(base, part[0]), uintptr(part[1]-part[0]),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
	}
	return nil
}
