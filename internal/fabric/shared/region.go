package shared

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

// The layout of a region: a control page, then for each direction of each lane the ring of
// slots, the ring of returns and the heap.
const (
	pageSize = 4096
	slotSize = 512
	// unit is the smallest block of a heap.
	unit = 4 << 10

	// sizeWords is the size of a direction's words in the control page, each on a cache line of
	// its own.
	sizeWords   = 512
	offConsumed = 0   // u32: slots that the consumer has read
	offWant     = 64  // u32: the producer waits for space
	offBell     = 128 // u32: rung for the consumer of this direction
	offSleeper  = 192 // u32: the consumer sleeps
	offReturned = 256 // u32: entries that the consumer has put into the ring of returns
)

func (g geometry) units() int        { return g.heap / unit }
func (g geometry) direction() int    { return g.slots*slotSize + 8*g.units() + g.heap }
func (g geometry) size() int         { return pageSize + 4*g.direction() }
func (g geometry) offset(at int) int { return pageSize + at*g.direction() }

// newRegion creates the memory of a connection, sealed against truncation.
func newRegion(g geometry) (*os.File, error) {
	f, err := memfd.New("outboard-calls", int64(g.size()))
	if err != nil {
		return nil, fmt.Errorf("region: %w", err)
	}
	return f, nil
}

// verifyRegion verifies that f has the size of g and is sealed against changes of its size.
func verifyRegion(f *os.File, g geometry) error {
	size, err := memfd.VerifyShared(f)
	if err != nil {
		return fmt.Errorf("region: %w", err)
	}
	if size != int64(g.size()) {
		return outboard.Errorf(outboard.Protocol, "region", "file of %d bytes: %v need %d", size, g, g.size())
	}
	return nil
}

// A region is the mapped memory of a connection. It is reference-counted: messages that were
// received in place outlive their connection.
type region struct {
	geometry
	file *os.File
	base unsafe.Pointer
	refs atomic.Int64
	// notifyPeer wakes a reader of the peer that has parked; set before the region is used.
	notifyPeer func()
}

// openRegion maps f and takes it over unless it returns an error. The region has one reference.
func openRegion(f *os.File, g geometry) (*region, error) {
	if os.Getpagesize() != pageSize {
		return nil, outboard.Errorf(outboard.Invalid, "region", "memory pages of %d bytes: the layout needs %d", os.Getpagesize(), pageSize)
	}
	if err := verifyRegion(f, g); err != nil {
		return nil, err
	}
	base, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(g.size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("region: map: %w", err)
	}
	r := &region{geometry: g, file: f, base: base}
	r.refs.Store(1)
	return r, nil
}

func (r *region) retain() { r.refs.Add(1) }

// tryRetain adds a reference unless the memory is unmapped already.
func (r *region) tryRetain() bool {
	for {
		n := r.refs.Load()
		if n == 0 {
			return false
		}
		if r.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (r *region) release() {
	if r.refs.Add(-1) == 0 {
		_ = unix.MunmapPtr(r.base, uintptr(r.size()))
		_ = r.file.Close()
	}
}

// word returns a word of the control page.
func (r *region) word(direction, offset int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Add(r.base, direction*sizeWords+offset))
}

func (r *region) slotsOf(direction int) unsafe.Pointer {
	return unsafe.Add(r.base, r.offset(direction))
}

func (r *region) returnsOf(direction int) unsafe.Pointer {
	return unsafe.Add(r.base, r.offset(direction)+r.slots*slotSize)
}

func (r *region) heapOf(direction int) unsafe.Pointer {
	return unsafe.Add(r.base, r.offset(direction)+r.slots*slotSize+8*r.units())
}
