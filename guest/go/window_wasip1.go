package guest

//go:wasmimport outboard request_offset
func requestOffset() int64

//go:wasmimport outboard response_place
func responsePlace(offset, size int32) int32

//go:wasmimport outboard arena_alloc
func arenaAlloc(size int32) int32

// window is the memory over which the host maps the arena of an execution. It is allocated once,
// before the image is taken, and its address never changes: Go's collector does not move objects,
// and this variable keeps it reachable.
var window []byte

const pageSize = 4096

//go:wasmexport outboard_arena
func outboardArena(size int32) int32 {
	memory := make([]byte, int(size)+pageSize)
	begin := -int(uintptr(at(memory))) & (pageSize - 1)
	window = memory[begin : begin+int(size) : begin+int(size)]
	readyForImage(int(size))
	return int32(uintptr(at(window)))
}

// requestInPlace returns the request as a part of the window, without a copy.
func requestInPlace() ([]byte, bool) {
	if window == nil {
		return nil, false
	}
	begin := requestOffset()
	if begin < 0 {
		return nil, false
	}
	return part(begin, int64(requestSize()))
}

func part(begin, size int64) ([]byte, bool) {
	if begin < 0 || size < 0 || begin+size > int64(len(window)) {
		return nil, false
	}
	return window[begin : begin+size : begin+size], true
}

// respondInPlace responds with b without a copy, and returns true, if b is a part of the window.
func respondInPlace(b []byte) bool {
	if len(b) == 0 || len(window) == 0 {
		return false
	}
	begin := uintptr(at(b)) - uintptr(at(window)) // wraps around if b lies before
	return begin < uintptr(len(window)) && responsePlace(int32(begin), int32(len(b))) == 0
}

func hostAlloc(n int) []byte {
	if window == nil || n <= 0 {
		return make([]byte, n)
	}
	if b, ok := part(int64(arenaAlloc(int32(n))), int64(n)); ok {
		return b
	}
	return make([]byte, n)
}
