package guest

import (
	"runtime"
	"runtime/debug"
	"unsafe"
)

// Go's runtime does some work once in a long-lived process that each call would repeat. So it is
// done here, by the last code that runs before the image is taken.

// readyForImage prepares the heap and the stack for the image. It gets the window's size.
func readyForImage(window int) {
	collectAsBefore(window)
	growStack(0)
	for _, rehearse := range rehearsals {
		rehearse()
	}
	fillCaches()
}

// collectionHeadroom is the number of bytes that may be allocated beside the window before the
// collector runs.
const collectionHeadroom = 16 << 20

// collectAsBefore ends the collection that the large allocation began: otherwise each call would
// start in the middle of it. It also excludes the window from the live heap: otherwise garbage
// could grow as large as the window.
func collectAsBefore(size int) {
	runtime.GC()
	debug.SetGCPercent(max(1, min(100, 100*collectionHeadroom/max(size, 1))))
}

// kept keeps the allocations of fillCaches, so that the compiler can't remove them.
var kept struct {
	bytes    []byte
	pointers []*byte
}

// fillCaches allocates an object of each size class, with and without pointers, up to large. The
// collection has emptied the allocator's caches (mcache), and each call would refill those that it
// needs. In spans whose last page holds the heap bitmap, the next allocation should lie in that
// page too: then a call dirties one page instead of two.
func fillCaches() {
	for size := 8; size <= large; size += max(8, size/16) {
		kept.bytes = make([]byte, size)
		kept.pointers = make([]*byte, size/8)
		for size <= described && uintptr(unsafe.Pointer(&kept.pointers[0]))&pageSize == 0 {
			kept.pointers = make([]*byte, size/8)
		}
	}
	kept.bytes, kept.pointers = nil, nil
}

const (
	large     = 4 << 10
	described = 512 // larger objects have a type header instead of a bitmap
)

// growStack grows the stack to 64 KiB: calls run on this goroutine's stack, which the collection
// has shrunk to the used size. Growing it three times took a third of the time of a handler that
// works on JSON. Unused pages stay zero and cost nothing.
//
//go:noinline
func growStack(at int) byte {
	var frame [40 << 10]byte
	frame[at] = byte(at)
	return frame[at/2]
}
