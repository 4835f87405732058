package guest

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strconv"
	"unsafe"
)

// The host's functions, specified in docs/design/0007. They retain no pointer.

//go:wasmimport outboard request_size
//go:noescape
func requestSize() int32

//go:wasmimport outboard request_read
//go:noescape
func requestRead(to unsafe.Pointer, size, offset int32) int32

//go:wasmimport outboard response_write
//go:noescape
func responseWrite(from unsafe.Pointer, size int32) int32

//go:wasmimport outboard body_read
//go:noescape
func bodyRead(to unsafe.Pointer, size int32) int32

//go:wasmimport outboard response_flush
//go:noescape
func responseFlush() int32

//go:wasmimport outboard import
//go:noescape
func importResource(name unsafe.Pointer, size int32) int32

//go:wasmimport outboard drop
//go:noescape
func dropResource(handle int32)

//go:wasmimport outboard result_size
//go:noescape
func resultSize() int32

//go:wasmimport outboard result_read
//go:noescape
func resultRead(to unsafe.Pointer, size, offset int32) int32

//go:wasmimport outboard call
//go:noescape
func callFunction(handle int32, from unsafe.Pointer, size int32) int32

//go:wasmimport outboard secret
//go:noescape
func readSecret(handle int32) int32

//go:wasmimport outboard bucket_get
//go:noescape
func bucketGet(handle int32, key unsafe.Pointer, size int32) int64

//go:wasmimport outboard bucket_txn
//go:noescape
func bucketTxn(handle int32, from unsafe.Pointer, size int32) int32

//go:wasmimport outboard arena_map
//go:noescape
func arenaMap(handle int32) int32

//go:wasmimport outboard device_info
//go:noescape
func deviceInfo(handle int32) int32

//go:wasmimport outboard device_do
//go:noescape
func deviceDo(handle int32, from unsafe.Pointer, size int32) int32

//go:wasmimport outboard meta
//go:noescape
func metaOf(name unsafe.Pointer, size int32) int32

// randomGet is WASI's own function, instead of crypto/rand, which would add half a megabyte.
//
//go:wasmimport wasi_snapshot_preview1 random_get
//go:noescape
func randomGet(to unsafe.Pointer, size int32) int32

// The results of handle.
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
	respond(response)
	return answered
}

func readRequest() []byte {
	if b, ok := requestInPlace(); ok {
		return b
	}
	small := scratch.request[:]
	n := int(requestRead(at(small), int32(len(small)), 0))
	if n < len(small) {
		return small[:n:n]
	}
	request := make([]byte, requestSize())
	copy(request, small)
	requestRead(at(request[n:]), int32(len(request)-n), int32(n))
	return request
}

// scratch is the memory for most requests, and for the first results of the host that are strings.
// As each request gets it in the state of the image, it is used once. An allocation for each request
// would dirty more pages, which the host has to restore; all of it is in one page, since an
// allocation of that size is.
var scratch = new(struct {
	used    int // bytes of texts
	texts   [textsSize]byte
	request [pageSize - 8 - textsSize]byte
})

const textsSize = 1 << 10

func respond(b []byte) {
	if !respondInPlace(b) {
		write(b)
	}
}

func write(b []byte) {
	if len(b) > 0 {
		responseWrite(at(b), int32(len(b)))
		runtime.KeepAlive(b)
	}
}

func fail(why string) int32 {
	write([]byte(why))
	return failed
}

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func atText(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }

// result returns the result of the last call of the host. Most results are small, and read
// in one call.
func result() []byte {
	var small [256]byte
	n := resultRead(unsafe.Pointer(&small), int32(len(small)), 0)
	if int(n) < len(small) {
		return append(make([]byte, 0, n), small[:n]...)
	}
	b := make([]byte, resultSize())
	resultRead(at(b), int32(len(b)), 0)
	return b
}

// resultText returns result as a string.
func resultText() string {
	left := scratch.texts[scratch.used:]
	if n := int(resultRead(at(left), int32(len(left)), 0)); n < len(left) {
		scratch.used += n
		return unsafe.String(unsafe.SliceData(left), n)
	}
	b := result()
	return unsafe.String(unsafe.SliceData(b), len(b)) // there is no other reference to b
}

func resultError() error { return errors.New(resultText()) }

func hostImport(name string) (int32, error) {
	handle := importResource(atText(name), int32(len(name)))
	if handle == 0 {
		return 0, resultError()
	}
	return handle, nil
}

func hostDrop(handle int32) { dropResource(handle) }

func hostCall(handle int32, request []byte) ([]byte, error) {
	status := callFunction(handle, at(request), int32(len(request)))
	runtime.KeepAlive(request)
	if status != 0 {
		return nil, resultError()
	}
	return result(), nil
}

func hostGet(handle int32, key string) ([]byte, int64, error) {
	revision := bucketGet(handle, atText(key), int32(len(key)))
	switch {
	case revision < 0:
		return nil, 0, resultError()
	case revision == 0:
		return nil, 0, nil
	}
	return result(), revision, nil
}

// The results of bucket_txn.
const (
	txnDone int32 = iota
	txnRefused
)

func hostTxn(handle int32, ops []byte) (int, error) {
	status := bucketTxn(handle, at(ops), int32(len(ops)))
	runtime.KeepAlive(ops)
	switch status {
	case txnDone:
		return -1, nil
	case txnRefused:
		return strconv.Atoi(resultText())
	}
	return 0, resultError()
}

func hostSecret(handle int32) ([]byte, error) {
	if readSecret(handle) != 0 {
		return nil, resultError()
	}
	return result(), nil
}

func hostArena(handle int32) ([]byte, error) {
	address := arenaMap(handle)
	if address == 0 {
		return nil, resultError()
	}
	size := binary.LittleEndian.Uint64(result())
	return unsafe.Slice((*byte)(unsafe.Add(nil, uint32(address))), size), nil
}

func hostDevice(handle int32) ([]byte, error) {
	if deviceInfo(handle) != 0 {
		return nil, resultError()
	}
	return result(), nil
}

// hostDo executes a list of commands. The memory to which they refer must not move meanwhile.
func hostDo(handle int32, list []byte, memory [][]byte) ([]byte, error) {
	status := deviceDo(handle, at(list), int32(len(list)))
	runtime.KeepAlive(list)
	runtime.KeepAlive(memory)
	if status != 0 {
		return nil, resultError()
	}
	if resultSize() == 0 {
		return nil, nil
	}
	return result(), nil
}

// addressOf returns the address by which a list of commands refers to the last of memory.
func addressOf(memory [][]byte) uint32 {
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(memory[len(memory)-1]))))
}

func hostMeta(name string) (string, bool) {
	if metaOf(atText(name), int32(len(name))) == 0 {
		return "", false
	}
	return resultText(), true
}

func hostBodyRead(b []byte) (int, error) {
	n := bodyRead(at(b), int32(min(len(b), 1<<30)))
	switch {
	case n < 0:
		return 0, resultError()
	case n == 0:
		return 0, io.EOF
	}
	return int(n), nil
}

func hostSend(b []byte) error {
	if len(b) > 0 && responseWrite(at(b), int32(len(b))) != 0 {
		return errTooLarge
	}
	runtime.KeepAlive(b)
	if responseFlush() != 0 {
		return resultError()
	}
	return nil
}

// collect runs a handler. The host has the parts of the response that were sent.
func collect(h Handler, request []byte) ([]byte, error) { return h(request) }

// errTooLarge is the error of a response beyond its limit. The host ends the call anyway.
var errTooLarge = errors.New("the response is larger than the function's response limit")

func hostRandom() uint64 {
	var number uint64
	randomGet(unsafe.Pointer(&number), int32(unsafe.Sizeof(number)))
	return number
}
