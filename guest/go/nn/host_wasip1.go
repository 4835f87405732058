package nn

import (
	"runtime"
	"unsafe"
)

//go:wasmimport wasi_ephemeral_nn load_by_name
func nnLoadByName(name unsafe.Pointer, size uint32, graph unsafe.Pointer) uint32

//go:wasmimport wasi_ephemeral_nn init_execution_context
func nnInitContext(graph uint32, context unsafe.Pointer) uint32

//go:wasmimport wasi_ephemeral_nn set_input
func nnSetInput(context, index uint32, tensor unsafe.Pointer) uint32

//go:wasmimport wasi_ephemeral_nn compute
func nnCompute(context uint32) uint32

//go:wasmimport wasi_ephemeral_nn get_output
func nnGetOutput(context, index uint32, buffer unsafe.Pointer, size uint32, written unsafe.Pointer) uint32

//go:wasmimport outboard result_size
func resultSize() int32

//go:wasmimport outboard result_read
func resultRead(to unsafe.Pointer, size, offset int32) int32

// check returns the error of a call, whose text is the host's result.
func check(op string, code uint32) error {
	if code == 0 {
		return nil
	}
	text := make([]byte, resultSize())
	if len(text) > 0 {
		text = text[:resultRead(unsafe.Pointer(unsafe.SliceData(text)), int32(len(text)), 0)]
	}
	return &Error{Op: op, Code: Code(code), Text: string(text)}
}

func loadByName(name string) (graph uint32, err error) {
	code := nnLoadByName(unsafe.Pointer(unsafe.StringData(name)), uint32(len(name)), unsafe.Pointer(&graph))
	runtime.KeepAlive(name)
	return graph, check("load "+name, code)
}

func initContext(graph uint32) (context uint32, err error) {
	code := nnInitContext(graph, unsafe.Pointer(&context))
	return context, check("init execution context", code)
}

func addressOf[T any](list []T) uint32 {
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(list))))
}

// input keeps the arrays of a tensor off the stack, which may move while their addresses are used.
var input *Tensor

func setInput(context, index uint32, t *Tensor) error {
	input = t
	record := [5]uint32{addressOf(t.Dimensions), uint32(len(t.Dimensions)), uint32(t.Type), addressOf(t.Data), uint32(len(t.Data))}
	code := nnSetInput(context, index, unsafe.Pointer(&record))
	input = nil
	return check("set input", code)
}

func compute(context uint32) error { return check("compute", nnCompute(context)) }

func getOutput(context, index uint32, buffer []byte) (int, error) {
	var written uint32
	code := nnGetOutput(context, index, unsafe.Pointer(unsafe.SliceData(buffer)), uint32(len(buffer)), unsafe.Pointer(&written))
	runtime.KeepAlive(buffer)
	return int(written), check("get output", code)
}
