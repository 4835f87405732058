package opencl

import (
	"errors"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// transfer is a command that copies bytes between ring and device. It can be executed piece by
// piece.
type transfer struct {
	mem   uintptr
	place *bufferPart // set for a contiguous part of a buffer
	total uint64
	unit  int // pieces are multiples of this
	// move enqueues a piece: the first piece waits for nWaits and waits, the last creates event.
	move func(ptr uintptr, offset uint64, size int, blocking, nWaits, waits, event uintptr) int32
}

// span is a box of rows in a buffer or image.
type span struct {
	row            uint64 // bytes
	origin, region [3]uint64
}

func (s *span) bytes() uint64 { return product(s.row, s.region[1], s.region[2]) }

// forEachBox splits size bytes at offset, both whole rows, into boxes.
func (s *span) forEachBox(offset uint64, size int, box func(origin, region [3]uint64, at uint64, last bool) int32) int32 {
	if s.bytes() == 0 {
		return box(s.origin, s.region, 0, true) // the driver has an error for it
	}
	height := s.region[1]
	first, rows, at := offset/s.row, uint64(size)/s.row, uint64(0)
	for rows > 0 {
		y, z := first%height, first/height
		origin := [3]uint64{s.origin[0], s.origin[1] + y, s.origin[2] + z}
		region := [3]uint64{s.region[0], min(height-y, rows), 1}
		if y == 0 && rows >= height {
			region[2] = rows / height
			region[1] = height
		}
		n := region[1] * region[2]
		rows, first = rows-n, first+n
		if status := box(origin, region, at, rows == 0); status != clSuccess {
			return status
		}
		at += n * s.row
	}
	return clSuccess
}

func (mv *mover) bufferTransfer(fn int, queue, mem uintptr, offset, size uint64) transfer {
	return transfer{mem: mem, place: &bufferPart{queue, offset}, total: size, unit: 1, move: func(ptr uintptr, at uint64, n int, blocking, nWaits, waits, event uintptr) int32 {
		return int32(mv.drv.Call(fn, queue, mem, blocking, uintptr(offset+at), uintptr(n), ptr, nWaits, waits, event))
	}}
}

// spanTransfer returns a transfer of the boxes of s. call passes the pitches, if any, to the
// driver.
func (mv *mover) spanTransfer(c *call, mem uintptr, s span, call func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32) transfer {
	origin, region := c.memory(24), c.memory(24)
	return transfer{mem: mem, total: s.bytes(), unit: int(min(max(s.row, 1), 1<<40)), move: func(ptr uintptr, at uint64, n int, blocking, nWaits, waits, event uintptr) int32 {
		return s.forEachBox(at, n, func(o, r [3]uint64, skip uint64, last bool) int32 {
			putWords(origin, o[:])
			putWords(region, r[:])
			out := event
			if !last {
				out = 0
			}
			status := call(driver.Address(origin), driver.Address(region), ptr+uintptr(skip), blocking, nWaits, waits, out)
			nWaits, waits = 0, 0
			return status
		})
	}}
}

func (mv *mover) rectTransfer(c *call, fn int, queue, mem uintptr, origin, region []uint64, rowPitch, slicePitch uint64) (transfer, error) {
	if len(origin) != 3 || len(region) != 3 {
		return transfer{}, errTriple
	}
	zero := c.memory(24)
	s := span{row: region[0], origin: [3]uint64(origin), region: [3]uint64(region)}
	return mv.spanTransfer(c, mem, s, func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32 {
		return int32(mv.drv.Call(fn, queue, mem, blocking, origin, driver.Address(zero), region,
			uintptr(rowPitch), uintptr(slicePitch), 0, 0, ptr, nWaits, waits, event))
	}), nil
}

func (mv *mover) imageTransfer(c *call, fn int, queue uintptr, image uint64, origin, region []uint64) (transfer, error) {
	if len(origin) != 3 || len(region) != 3 {
		return transfer{}, errTriple
	}
	handle := c.handle(kindMem, image)
	element, ok := mv.memObjects.elements[image]
	if !ok {
		c.fail(invalid[kindMem])
	}
	s := span{row: product(region[0], element), origin: [3]uint64(origin), region: [3]uint64(region)}
	return mv.spanTransfer(c, handle, s, func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32 {
		return int32(mv.drv.Call(fn, queue, handle, blocking, origin, region, 0, 0, ptr, nWaits, waits, event))
	}), nil
}

var errTriple = errors.New("origin or region without three numbers")

func putWords(b []byte, words []uint64) {
	for i, v := range words {
		for j := range 8 {
			b[8*i+j] = byte(v >> (8 * j))
		}
	}
}

// waitList is a command's wait list as the driver's arguments.
type waitList struct{ count, list uintptr }

func (c *call) waitList(ids []uint64) waitList {
	return waitList{uintptr(len(ids)), c.handles(kindEvent, ids)}
}

// mover calls the driver's functions that move bytes: copies of buffers, rectangles and images, and
// maps.
type mover struct {
	drv        *driver.Table
	frames     *frames
	device     *device
	memObjects *memObjects
	area       int // size of each direction of the ring
}
