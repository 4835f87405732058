package shm

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

// The layout of the control page, which cmd/libsession/ring/ring.c repeats.
const (
	magic   = 0x4f425247
	version = 1

	offMagic   = 0
	offVersion = 4
	offArea    = 8
	offClosed  = 64
	offDir     = 128 // direction d begins at offDir + d*sizeDir
	sizeDir    = 512

	offHead         = 0
	offDataBell     = 64
	offDataSleeper  = 128
	offTail         = 192
	offSpaceBell    = 256
	offSpaceSleeper = 320

	pageSize = 4096
	// MinArea and MaxArea bound the size of one area in bytes.
	MinArea     = pageSize
	MaxArea     = 1 << 30
	DefaultArea = 4 << 20
)

// NewFile creates the memory of a ring without mapping it: a sealed memfd with a
// header. It is for a process that passes both ends to others.
func NewFile(area int) (*os.File, error) {
	if err := checkArea(uint64(max(area, 0))); err != nil {
		return nil, err
	}
	f, err := memfd.New("outboard-ring", int64(pageSize+2*area))
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	header := make([]byte, 16)
	binary.LittleEndian.PutUint32(header[offMagic:], magic)
	binary.LittleEndian.PutUint32(header[offVersion:], version)
	binary.LittleEndian.PutUint64(header[offArea:], uint64(area))
	if _, err := f.WriteAt(header, 0); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("ring: write header: %w", err)
	}
	return f, nil
}

func checkArea(area uint64) error {
	if area < MinArea || area > MaxArea || bits.OnesCount64(area) != 1 {
		return outboard.Errorf(outboard.Invalid, "ring", "area of %d bytes: want a power of two from %d to %d", area, MinArea, MaxArea)
	}
	return nil
}

// inspect checks that f is a ring whose size can never change, and returns the
// size of its areas. The peer created the file, so every field is validated.
func inspect(f *os.File) (area uint64, err error) {
	size, err := memfd.VerifyShared(f)
	if err != nil {
		return 0, outboard.Errorf(outboard.Invalid, "ring", "%w", err)
	}
	header := make([]byte, 16)
	if _, err := f.ReadAt(header, 0); err != nil {
		return 0, outboard.Errorf(outboard.Invalid, "ring", "read header: %w", err)
	}
	if m := binary.LittleEndian.Uint32(header[offMagic:]); m != magic {
		return 0, outboard.Errorf(outboard.Invalid, "ring", "magic %#x is not a ring's", m)
	}
	if v := binary.LittleEndian.Uint32(header[offVersion:]); v != version {
		return 0, outboard.Errorf(outboard.Invalid, "ring", "layout version %d: this program knows %d", v, version)
	}
	area = binary.LittleEndian.Uint64(header[offArea:])
	if err := checkArea(area); err != nil {
		return 0, err
	}
	if want := int64(pageSize + 2*area); size != want {
		return 0, outboard.Errorf(outboard.Invalid, "ring", "file of %d bytes: areas of %d need %d", size, area, want)
	}
	return area, nil
}

// mapping is the memory of one end.
type mapping struct {
	control unsafe.Pointer
	areas   [2][]byte // each twice as long as the area
}

func mapRing(fd uintptr, area uint64) (m mapping, err error) {
	const access = unix.PROT_READ | unix.PROT_WRITE
	if os.Getpagesize() != pageSize {
		return m, outboard.Errorf(outboard.Invalid, "ring", "memory pages of %d bytes: the layout needs %d", os.Getpagesize(), pageSize)
	}
	m.control, err = unix.MmapPtr(int(fd), 0, nil, pageSize, access, unix.MAP_SHARED)
	if err != nil {
		return m, fmt.Errorf("map ring: %w", err)
	}
	for d := range m.areas {
		if m.areas[d], err = mapTwice(int(fd), int64(pageSize+uint64(d)*area), uintptr(area)); err != nil {
			m.unmap()
			return m, fmt.Errorf("map ring: %w", err)
		}
	}
	return m, nil
}

// mapTwice maps the area at offset at two adjacent addresses. It first reserves the address
// range of both, so that no other mapping can lie between them.
func mapTwice(fd int, offset int64, area uintptr) ([]byte, error) {
	base, err := unix.MmapPtr(-1, 0, nil, 2*area, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	for half := range uintptr(2) {
		at := unsafe.Add(base, half*area)
		if _, err := unix.MmapPtr(fd, offset, at, area, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			_ = unix.MunmapPtr(base, 2*area)
			return nil, err
		}
	}
	return unsafe.Slice((*byte)(base), 2*area), nil
}

func (m *mapping) unmap() {
	_ = unix.MunmapPtr(m.control, pageSize)
	for d, area := range m.areas {
		if area != nil {
			_ = unix.MunmapPtr(unsafe.Pointer(&area[0]), uintptr(len(area)))
		}
		m.areas[d] = nil
	}
	m.control = nil
}
