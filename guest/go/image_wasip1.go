package guest

import (
	"runtime"
	"runtime/debug"
	"unsafe"
)

// What Go's runtime does at leisure in a process that lives long each call would do
// anew. So it is brought about here: this is the last that runs before the image is
// taken.

// readyForImage is told how large the window is.
func readyForImage(window int) {
	collectAsBefore(window)
	growStack(0)
	for _, rehearse := range rehearsals {
		rehearse()
	}
	fillCaches()
}

// room is how much may be allocated beside the window before the collector runs.
const room = 16 << 20

// collectAsBefore ends the collection that so large an allocation began: each call
// would start amid it. And it has the window not count as live memory, or garbage
// could grow as large as the window is.
func collectAsBefore(size int) {
	runtime.GC()
	debug.SetGCPercent(max(1, min(100, 100*room/max(size, 1))))
}

// kept is what fillCaches allocates; no compiler may leave it out.
var kept struct {
	bytes    []byte
	pointers []*byte
}

// fillCaches allocates something of each size, with and without pointers, up to large.
// The collection has emptied the allocator's caches, and each call would begin with
// filling those again that it needs. Where a span's last page says what in it are pointers,
// the next allocation is to lie in that page too: then a call writes to one instead of two.
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
	described = 512 // larger ones say themselves what in them are pointers
)

// growStack makes the stack 64 KiB large: calls run on this goroutine's, which the
// collection has cut down to what is in use. To grow it three times took a third of a
// handler that works on JSON. What nobody uses stays zero, and costs nothing.
//
//go:noinline
func growStack(at int) byte {
	var frame [40 << 10]byte
	frame[at] = byte(at)
	return frame[at/2]
}
