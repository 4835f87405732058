package guest

import (
	"runtime"
	"unsafe"
)

//go:wasmimport outboard request_size
func requestSize() int32

//go:wasmimport outboard request_read
func requestRead(to unsafe.Pointer, size, offset int32) int32

//go:wasmimport outboard response_write
func responseWrite(from unsafe.Pointer, size int32) int32

// The answers of handle.
const (
	answered int32 = iota
	failed
)

//go:wasmexport handle
func handle() int32 {
	response, err := Call(readRequest())
	if err != nil {
		return fail(err.Error())
	}
	write(response)
	return answered
}

func readRequest() []byte {
	request := make([]byte, requestSize())
	if len(request) > 0 {
		requestRead(unsafe.Pointer(unsafe.SliceData(request)), int32(len(request)), 0)
	}
	return request
}

func write(b []byte) {
	if len(b) > 0 {
		responseWrite(unsafe.Pointer(unsafe.SliceData(b)), int32(len(b)))
		runtime.KeepAlive(b)
	}
}

func fail(why string) int32 {
	write([]byte(why))
	return failed
}
