package image

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extent is a part of a window where a file is mapped.
type extent struct {
	from, to int // offsets in the range
	shared   bool
}

// Map maps size bytes of a file into the window, at the offset at. Writes to a shared mapping go to
// the file; Reset discards writes to a private one. A part of the window that is mapped must be
// unmapped before it is mapped again. The file must not be truncated.
//
// All mappings are writable: a write of compiled code to a read-only page would end the
// process.
func (r *Range) Map(at, size int, file *os.File, shared bool) error {
	e := extent{r.image.window.From + at, r.image.window.From + at + size, shared}
	if at < 0 || size <= 0 || at%PageSize != 0 || size%PageSize != 0 || e.to > r.image.window.To {
		return fmt.Errorf("no %d bytes can be mapped at %d of a window of %d", size, at, r.image.window.To-r.image.window.From)
	}
	i := 0
	for i < len(r.mapped) && r.mapped[i].to <= e.from {
		i++
	}
	if i < len(r.mapped) && r.mapped[i].from < e.to {
		return fmt.Errorf("%d bytes at %d of the window are mapped already", size, at)
	}
	how := unix.MAP_PRIVATE | unix.MAP_NORESERVE
	if shared {
		how = unix.MAP_SHARED
	}
	_, err := unix.MmapPtr(int(file.Fd()), 0, unsafe.Pointer(&r.base[e.from]), uintptr(size), unix.PROT_READ|unix.PROT_WRITE, how|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", size, err)
	}
	r.mapped = slices.Insert(r.mapped, i, e)
	return nil
}

// Unmap replaces a mapping of Map by zero pages.
func (r *Range) Unmap(at int) error {
	from := r.image.window.From + at
	i := slices.IndexFunc(r.mapped, func(e extent) bool { return e.from == from })
	if i < 0 {
		return fmt.Errorf("nothing is mapped at %d of the window", at)
	}
	if err := r.clear(from, r.mapped[i].to); err != nil {
		return fmt.Errorf("unmap: %w", err)
	}
	r.mapped = slices.Delete(r.mapped, i, i+1)
	return nil
}

// unshared calls each for the parts of the first size bytes that are not shared mappings.
func (r *Range) unshared(size int, each func(from, to int) error) error {
	at := 0
	for _, e := range r.mapped {
		if !e.shared {
			continue
		}
		if at < e.from {
			if err := each(at, e.from); err != nil {
				return err
			}
		}
		at = e.to
	}
	if at >= size {
		return nil
	}
	return each(at, size)
}
