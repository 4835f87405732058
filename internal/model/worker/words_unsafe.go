package worker

import (
	"sync/atomic"
	"unsafe"
)

// wordAt returns the word at an aligned offset of shared memory.
func wordAt(memory []byte, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&memory[offset : offset+8][0]))
}
