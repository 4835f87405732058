package shared

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// The layout of a region: a control page, then for each lane and each way the ring
// of slots, the ring of returns and the heap.
const (
	pageSize = 4096
	slotSize = 512
	// unit is the smallest piece of a heap.
	unit = 4 << 10

	// The control page has one block of words for each of the four directions, each
	// word on a cache line of its own.
	sizeWords   = 512
	offTaken    = 0   // u32: slots that the consumer has taken
	offWant     = 64  // u32: the producer wants to hear of room
	offBell     = 128 // u32: rung for the consumer of this direction
	offSleeper  = 192 // u32: the consumer sleeps
	offReturned = 256 // u32: entries that the producer has taken from its ring of returns
)

const wantedSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

func (g geometry) units() int        { return g.heap / unit }
func (g geometry) direction() int    { return g.slots*slotSize + 8*g.units() + g.heap }
func (g geometry) size() int         { return pageSize + 4*g.direction() }
func (g geometry) offset(at int) int { return pageSize + at*g.direction() }

// newRegion makes the memory of a connection: sealed, so that nobody can take it
// away under a reader.
func newRegion(g geometry) (*os.File, error) {
	fd, err := unix.MemfdCreate("outboard-calls", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("region: %w", err)
	}
	f := os.NewFile(uintptr(fd), "outboard-calls")
	if err := f.Truncate(int64(g.size())); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("region: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, wantedSeals|unix.F_SEAL_SEAL); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("region: seal: %w", err)
	}
	return f, nil
}

// inspect checks that f is memory whose size is what g says, for ever.
func inspect(f *os.File, g geometry) error {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&wantedSeals != wantedSeals {
		return outboard.Errorf(outboard.Protocol, "region", "file is not sealed against a change of size")
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return outboard.Errorf(outboard.Protocol, "region", "file is sealed against writing")
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("region: %w", err)
	}
	if info.Size() != int64(g.size()) {
		return outboard.Errorf(outboard.Protocol, "region", "file of %d bytes: %v need %d", info.Size(), g, g.size())
	}
	return nil
}

// A region is the mapped memory of a connection. It stays mapped while anybody
// refers to it: messages that were received in place outlive their connection.
type region struct {
	geometry
	file *os.File
	base unsafe.Pointer
	refs atomic.Int64
}

// openRegion maps f, and owns it when it returns no error. It begins with one reference.
func openRegion(f *os.File, g geometry) (*region, error) {
	if os.Getpagesize() != pageSize {
		return nil, outboard.Errorf(outboard.Invalid, "region", "memory pages of %d bytes: the layout needs %d", os.Getpagesize(), pageSize)
	}
	if err := inspect(f, g); err != nil {
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

// tryRetain is for whoever holds no reference: it fails once the memory is gone.
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

// word is a word of the control page.
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
