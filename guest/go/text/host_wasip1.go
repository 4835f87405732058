package text

import (
	"runtime"
	"unsafe"

	"github.com/outboard-run/outboard/guest/go/nn"
)

// The host's functions, specified in docs/functions.md. They retain no pointer.

//go:wasmimport outboard import
func importResource(name unsafe.Pointer, size uint32) int32

//go:wasmimport outboard_text start
func textStart(model int32, request unsafe.Pointer, size uint32, stream unsafe.Pointer) uint32

//go:wasmimport outboard_text next
func textNext(stream uint32, more unsafe.Pointer) uint32

//go:wasmimport outboard_text end
func textEnd(stream uint32) uint32

//go:wasmimport outboard result_size
func resultSize() int32

//go:wasmimport outboard result_read
func resultRead(to unsafe.Pointer, size, offset int32) int32

// result returns the host's result of the last call.
func result() []byte {
	b := make([]byte, resultSize())
	if len(b) == 0 {
		return b
	}
	return b[:resultRead(unsafe.Pointer(unsafe.SliceData(b)), int32(len(b)), 0)]
}

// check returns the error of a call, whose text is the host's result.
func check(op string, code uint32) error {
	if code == 0 {
		return nil
	}
	return &Error{Op: op, Code: nn.Code(code), Text: string(result())}
}

func load(name string) (int32, error) {
	resource := "model:" + name
	handle := importResource(unsafe.Pointer(unsafe.StringData(resource)), uint32(len(resource)))
	runtime.KeepAlive(resource)
	if handle == 0 {
		return 0, &Error{Op: "load " + name, Code: nn.NotFound, Text: string(result())}
	}
	return handle, nil
}

type stream struct{ number uint32 }

func start(model int32, request []byte) (*stream, error) {
	s := new(stream)
	code := textStart(model, unsafe.Pointer(unsafe.SliceData(request)), uint32(len(request)), unsafe.Pointer(&s.number))
	runtime.KeepAlive(request)
	return s, check("start", code)
}

// next returns the next chunk, nil after the last one.
func (s *stream) next() ([]byte, error) {
	more := new(uint32)
	if err := check("next", textNext(s.number, unsafe.Pointer(more))); err != nil || *more == 0 {
		return nil, err
	}
	return result(), nil
}

func (s *stream) end() { textEnd(s.number) }
