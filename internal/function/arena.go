package function

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/image"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

// Extent is a range of bytes in an arena.
type Extent struct{ Offset, Size int }

// Arena is memory that several functions and the host share: a sealed memfd of constant size. It is
// reference-counted; the last Close frees it.
//
// Guests may write to it at any time. A decoder of its contents must tolerate bytes that change
// while it reads them, or copy them first.
type Arena struct {
	file *os.File
	view []byte

	mu      sync.Mutex
	holders int
	free    freeList
	used    int // the end of everything that was ever allocated
	bound   Bound
	charged int64 // of bound
}

// Bound is a budget from which memory is reserved; internal/quota has one for each tenant.
type Bound interface {
	TryReserve(bytes int64) error
	Release(bytes int64)
}

// Charge reserves the memory that the arena occupies by now: guests write anywhere in it, and each
// page occupies memory from its first write on. The bound is b from the first call on. An error
// says that the tenant's arenas occupy more than they may; the written bytes stay.
func (a *Arena) Charge(b Bound) error {
	var stat unix.Stat_t
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		return errArenaClosed
	}
	if err := unix.Fstat(int(a.file.Fd()), &stat); err != nil {
		return err
	}
	if a.bound == nil {
		a.bound = b
	}
	more := stat.Blocks*512 - a.charged // the unit of st_blocks, stat(2)
	if more <= 0 {
		return nil
	}
	if err := a.bound.TryReserve(more); err != nil {
		return err
	}
	a.charged += more
	return nil
}

// errArenaClosed is the error of using an arena without holders.
var errArenaClosed = errors.New("the arena is closed")

// NewArena creates an arena of at least size bytes, all zero. The caller is its first holder.
func NewArena(size outboard.Bytes) (*Arena, error) {
	const op = "make arena"
	if size == 0 || size > maxMemory {
		return nil, outboard.Errorf(outboard.Invalid, op, "size of %v: want 1 B to 4 GiB less 64 KiB", size)
	}
	a := &Arena{holders: 1}
	if err := a.open(int(size+image.PageSize-1) / image.PageSize * image.PageSize); err != nil {
		return nil, outboard.Errorf(outboard.Exhausted, op, "%v: %w", size, err)
	}
	return a, nil
}

func (a *Arena) open(size int) error {
	file, err := memfd.New("outboard-arena", int64(size))
	if err != nil {
		return err
	}
	a.file = file
	a.view, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = file.Close()
		return err
	}
	a.free = newFreeList(size)
	return nil
}

// Size returns the arena's length in bytes, whole pages.
func (a *Arena) Size() int { return len(a.view) }

// Bytes returns the whole arena, for a holder.
func (a *Arena) Bytes() []byte { return a.view }

// Slice returns the bytes of an extent, for a holder. An extent outside of the arena is an error.
func (a *Arena) Slice(p Extent) ([]byte, error) {
	if p.Offset < 0 || p.Size < 0 || p.Offset > len(a.view)-p.Size {
		return nil, fmt.Errorf("%d bytes at %d lie outside of an arena of %d", p.Size, p.Offset, len(a.view))
	}
	return a.view[p.Offset : p.Offset+p.Size : p.Offset+p.Size], nil
}

// Alloc allocates size bytes at a multiple of 16. They are zero unless a guest writes outside of
// its allocations. It returns false when there is no such extent.
func (a *Arena) Alloc(size int) (Extent, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.free.allocate(size)
	if ok {
		clear(a.view[at:max(at, min(at+size, a.used))])
		a.used = max(a.used, at+size)
	}
	return Extent{at, size}, ok
}

// Free frees an allocation of Alloc.
func (a *Arena) Free(p Extent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free.release(p)
}

// Put copies bytes into a new allocation.
func (a *Arena) Put(b []byte) (Extent, error) {
	p, ok := a.Alloc(len(b))
	if !ok {
		return p, a.fullError(len(b))
	}
	copy(a.view[p.Offset:], b)
	return p, nil
}

// fullError is the error of n bytes for which the arena has no space. Nothing frees space in it while its
// execution runs, so another attempt fails, too.
func (a *Arena) fullError(n int) error {
	return &outboard.Error{Op: fmt.Sprintf("keep %d bytes", n), Kind: outboard.Exhausted, Err: &LimitError{
		"arena", outboard.Bytes(len(a.view)).String(),
		"all inputs and results of an execution that are no small JSON share it, and it is as large as the smallest window of the app's functions, 64 MiB at most: raise their limits.window, or pass less between steps",
	}}
}

// Retain adds a reference, which Close drops. It fails after the last reference was dropped.
func (a *Arena) Retain() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		return errArenaClosed
	}
	a.holders++
	return nil
}

// Close drops a reference. The last one frees the memory: idle instances may still have it mapped,
// so its pages are punched out of the file.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		return errArenaClosed
	}
	if a.holders--; a.holders > 0 {
		return nil
	}
	if a.bound != nil {
		a.bound.Release(a.charged)
	}
	size := int64(len(a.view))
	return errors.Join(
		unix.Fallocate(int(a.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size),
		unix.Munmap(a.view), a.file.Close(),
	)
}
