package onnx

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/outboard-run/outboard"
)

// Indices of functions in ONNX Runtime's table OrtApi (onnxruntime_c_api.h). The table is
// append-only: an index means the same function in all later versions of the API.
const (
	fnGetErrorCode                     = 1
	fnGetErrorMessage                  = 2
	fnCreateEnv                        = 3
	fnCreateSession                    = 7
	fnRun                              = 9
	fnCreateSessionOptions             = 10
	fnSetSessionGraphOptimizationLevel = 23
	fnSetIntraOpNumThreads             = 24
	fnSetInterOpNumThreads             = 25
	fnSessionGetInputCount             = 30
	fnSessionGetOutputCount            = 31
	fnSessionGetInputTypeInfo          = 33
	fnSessionGetOutputTypeInfo         = 34
	fnSessionGetInputName              = 36
	fnSessionGetOutputName             = 37
	fnCreateRunOptions                 = 39
	fnRunOptionsSetTerminate           = 46
	fnCreateTensorAsOrtValue           = 48
	fnCreateTensorWithDataAsOrtValue   = 49
	fnIsTensor                         = 50
	fnGetTensorMutableData             = 51
	fnFillStringTensor                 = 52
	fnGetStringTensorDataLength        = 53
	fnGetStringTensorContent           = 54
	fnCastTypeInfoToTensorInfo         = 55
	fnGetTensorElementType             = 60
	fnGetDimensionsCount               = 61
	fnGetDimensions                    = 62
	fnGetSymbolicDimensions            = 63
	fnGetTensorTypeAndShape            = 65
	fnCreateCPUMemoryInfo              = 69
	fnAllocatorFree                    = 76
	fnGetAllocatorWithDefaultOptions   = 78
	fnReleaseStatus                    = 93
	fnReleaseSession                   = 95
	fnReleaseValue                     = 96
	fnReleaseRunOptions                = 97
	fnReleaseTypeInfo                  = 98
	fnReleaseTensorTypeAndShapeInfo    = 99
	fnReleaseSessionOptions            = 100
	fnAddSessionConfigEntry            = 130

	tableSize = fnAddSessionConfigEntry + 1
)

// The versions of the API that this binding knows: the oldest has all indices above. The newest
// version that a library has is used.
const (
	newestAPI = 28
	oldestAPI = 16
)

// A library is ONNX Runtime, loaded into this process, with its environment. It is never
// unloaded: its threads may still run.
type library struct {
	handle    uintptr
	version   string
	functions [tableSize]uintptr
	allocator uintptr
	memory    uintptr // description of the processor's memory
	env       uintptr
}

//nolint:gochecknoglobals // libraries belong to the process
var (
	librariesMu sync.Mutex
	libraries   = map[string]*library{} // by path
)

// openLibrary loads the library at path, once per process.
func openLibrary(path string) (*library, error) {
	librariesMu.Lock()
	defer librariesMu.Unlock()
	if l := libraries[path]; l != nil {
		return l, nil
	}
	l, err := loadLibrary(path)
	if err != nil {
		// Another node may have the library.
		return nil, outboard.Errorf(outboard.NoDevice, "load ONNX Runtime", "%w", err)
	}
	libraries[path] = l
	return l, nil
}

func loadLibrary(path string) (*library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	base, err := purego.Dlsym(handle, "OrtGetApiBase")
	if err != nil {
		return nil, fmt.Errorf("%s is not ONNX Runtime: %w", path, err)
	}
	l := &library{handle: handle}
	// OrtApiBase is a table of two functions: GetApi and GetVersionString.
	entry, _, _ := purego.SyscallN(base)
	if entry == 0 {
		return nil, fmt.Errorf("%s has no table of functions", path)
	}
	getAPI, getVersion := readPointer(entry), readPointer(entry+unsafe.Sizeof(entry))
	version, _, _ := purego.SyscallN(getVersion)
	l.version = goString(version)
	table := uintptr(0)
	for v := uintptr(newestAPI); table == 0 && v >= oldestAPI; v-- {
		table, _, _ = purego.SyscallN(getAPI, v)
	}
	if table == 0 {
		return nil, fmt.Errorf("%s is version %q, which has none of the versions %d to %d of the API", path, l.version, oldestAPI, newestAPI)
	}
	for i := range l.functions {
		l.functions[i] = readPointer(table + uintptr(i)*unsafe.Sizeof(table))
	}
	return l, l.prepare()
}

// prepare creates the objects that all sessions share.
func (l *library) prepare() error {
	var pins runtime.Pinner
	defer pins.Unpin()
	const (
		fatalOnly      = 4 // errors are returned as well
		arenaAllocator = 1
		defaultMemory  = 0
	)
	return errors.Join(
		l.call(fnCreateEnv, fatalOnly, cString(&pins, "outboard"), pin(&pins, &l.env)),
		l.call(fnGetAllocatorWithDefaultOptions, pin(&pins, &l.allocator)),
		l.call(fnCreateCPUMemoryInfo, arenaAllocator, defaultMemory, pin(&pins, &l.memory)),
	)
}

// codes are the kinds of errors by their OrtErrorCode.
//
//nolint:gochecknoglobals // a table
var codes = map[uintptr]outboard.Kind{
	2: outboard.Invalid, 3: outboard.NotFound, 4: outboard.NotFound, 5: outboard.Other, 6: outboard.Other,
	7: outboard.Invalid, 8: outboard.Conflict, 9: outboard.Invalid, 10: outboard.Invalid,
}

// call calls a function that returns a status, and converts the status. Pointers among args
// have to be pinned or belong to the library.
func (l *library) call(fn int, args ...uintptr) error {
	status, _, _ := purego.SyscallN(l.functions[fn], args...)
	return l.statusError(status)
}

// statusError converts a status, which it releases.
func (l *library) statusError(status uintptr) error {
	if status == 0 {
		return nil
	}
	code, _, _ := purego.SyscallN(l.functions[fnGetErrorCode], status)
	text, _, _ := purego.SyscallN(l.functions[fnGetErrorMessage], status)
	err := outboard.Errorf(codes[code], "", "%s", goString(text))
	l.release(fnReleaseStatus, status)
	return err
}

// release calls a function that frees an object, unless object is 0.
func (l *library) release(fn int, object uintptr) {
	if object != 0 {
		_, _, _ = purego.SyscallN(l.functions[fn], object)
	}
}

// pin returns the address of v, which neither moves nor is freed until pins.Unpin. Every pointer
// that is passed to the library is pinned: converting a pointer to uintptr does not keep the
// variable on the heap, and a goroutine's stack may move during the call.
func pin[T any](pins *runtime.Pinner, v *T) uintptr {
	pins.Pin(v)
	return uintptr(unsafe.Pointer(v))
}

// pinSlice returns the address of the first element, 0 for an empty slice.
func pinSlice[T any](pins *runtime.Pinner, v []T) uintptr {
	if len(v) == 0 {
		return 0
	}
	return pin(pins, &v[0])
}

// cString returns the address of a copy of text with a zero byte behind it.
func cString(pins *runtime.Pinner, text string) uintptr {
	return pinSlice(pins, append([]byte(text), 0))
}

// maxText bounds the length of the library's texts.
const maxText = 16 << 10

// goString copies a C string of the library.
func goString(address uintptr) string {
	if address == 0 {
		return ""
	}
	text := unsafe.Slice((*byte)(foreign(address)), maxText)
	for i := range text {
		if text[i] == 0 {
			return string(text[:i])
		}
	}
	return string(bytes.Clone(text))
}

// readPointer reads a pointer in the library's memory.
func readPointer(address uintptr) uintptr { return *(*uintptr)(foreign(address)) }

// foreign converts an address in the library's memory, which Go's collector does not manage.
func foreign(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}
