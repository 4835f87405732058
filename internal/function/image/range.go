package image

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Range is the reserved address space of one instance's memory. Its address never changes.
type Range struct {
	base    []byte   // the whole range
	image   *Image   // the image that is mapped at its beginning, or nil
	mapped  []extent // the files in the image's window, in order
	private []int32  // the pages of the image that have a private copy
	resets  int      // the number of resets since Load
	pool    *Pool
}

// Bytes returns the whole range. Memory above the image reads as zero.
func (r *Range) Bytes() []byte { return r.base }

// Load maps an image at the beginning.
func (r *Range) Load(i *Image) error {
	if i.size > len(r.base) {
		return fmt.Errorf("image of %d bytes in a range of %d", i.size, len(r.base))
	}
	if i.size > 0 {
		if err := i.mapOver(unsafe.Pointer(&r.base[0])); err != nil {
			return fmt.Errorf("map image: %w", err)
		}
	}
	r.image, r.private, r.resets = i, nil, 0
	return nil
}

// clearAll unmaps everything in the range.
func (r *Range) clearAll() error {
	r.image, r.mapped, r.private = nil, nil, nil
	return r.clear(0, len(r.base))
}

// clear replaces a part of the range by zero pages that are not shared.
func (r *Range) clear(from, to int) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&r.base[from]), uintptr(to-from), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

// Private returns the bytes in private pages that the last reset kept. Without a scan it
// is 0, since no page is kept.
func (r *Range) Private() int { return len(r.private) * PageSize }

// Release returns the range to its pool.
func (r *Range) Release() { r.pool.release(r) }

// Pool caches idle ranges, because mmap and munmap take a lock of the whole process.
type Pool struct {
	// Keep bounds the idle ranges of each size. 0 means DefaultKeep.
	Keep int

	mu     sync.Mutex
	idle   map[int][]*Range
	closed bool
}

// DefaultKeep suffices for the slots of a few functions.
const DefaultKeep = 16

// Acquire returns an empty range of size bytes, a multiple of PageSize.
func (p *Pool) Acquire(size int) (*Range, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have := p.idle[size]; len(have) > 0 {
		r := have[len(have)-1]
		p.idle[size] = have[:len(have)-1]
		return r, nil
	}
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes: %w", size, err)
	}
	return &Range{base: unsafe.Slice((*byte)(base), size), pool: p}, nil
}

func (p *Pool) release(r *Range) {
	keep := p.Keep
	if keep == 0 {
		keep = DefaultKeep
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	size := len(r.base)
	if p.closed || len(p.idle[size]) >= keep || r.clearAll() != nil {
		_ = unix.MunmapPtr(unsafe.Pointer(&r.base[0]), uintptr(size))
		return
	}
	if p.idle == nil {
		p.idle = make(map[int][]*Range)
	}
	p.idle[size] = append(p.idle[size], r)
}

// Close unmaps the idle ranges, and others when they are released.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for size, ranges := range p.idle {
		for _, r := range ranges {
			_ = unix.MunmapPtr(unsafe.Pointer(&r.base[0]), uintptr(size))
		}
	}
	p.idle = nil
	return nil
}
