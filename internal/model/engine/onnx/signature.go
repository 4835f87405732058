package onnx

import (
	"runtime"

	"github.com/ebitengine/purego"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// A signature is the signature of an input or output, with the names of the variable dimensions, ""
// for a dimension without a name.
type signature struct {
	model.Signature
	symbols []string
	kind    uintptr // ONNXTensorElementDataType
}

// Limits of the declarations in a hostile file.
const (
	maxValues = 4096
	maxRank   = 64
)

// elementTypes are the data types by ONNXTensorElementDataType.
//
//nolint:gochecknoglobals // a table
var elementTypes = map[uintptr]model.DataType{
	1: model.FP32, 2: model.Uint8, 3: model.Int8, 4: model.Uint16, 5: model.Int16, 6: model.Int32, 7: model.Int64,
	8: model.Bytes, 9: model.Bool, 10: model.FP16, 11: model.FP64, 12: model.Uint32, 13: model.Uint64, 16: model.BF16,
}

// signatures reads the inputs or outputs of a session with the functions for them.
func (l *library) signatures(session uintptr, count, name, typeInfo int) ([]signature, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	var n uintptr
	if err := l.call(count, session, pin(&pins, &n)); err != nil {
		return nil, err
	}
	if n > maxValues {
		return nil, outboard.Errorf(outboard.Exhausted, "", "the model has %d, and %d are allowed", n, maxValues)
	}
	list := make([]signature, n)
	for i := range list {
		if err := l.readSignature(&list[i], session, uintptr(i), name, typeInfo); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (l *library) readSignature(s *signature, session, i uintptr, name, typeInfo int) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	var text, info, tensor uintptr
	if err := l.call(name, session, i, l.allocator, pin(&pins, &text)); err != nil {
		return err
	}
	s.Name = goString(text)
	_, _, _ = purego.SyscallN(l.functions[fnAllocatorFree], l.allocator, text)
	if err := l.call(typeInfo, session, i, pin(&pins, &info)); err != nil {
		return err
	}
	defer func() { l.release(fnReleaseTypeInfo, info) }()
	if err := l.call(fnCastTypeInfoToTensorInfo, info, pin(&pins, &tensor)); err != nil {
		return err
	}
	if tensor == 0 {
		return outboard.Errorf(outboard.Invalid, "", "%q is a sequence, a map or an optional value: only tensors are served", s.Name)
	}
	kind, shape, err := l.readShape(tensor)
	if err != nil {
		return err
	}
	s.kind, s.Shape, s.Type = kind, shape, elementTypes[kind]
	if s.Type == model.Invalid {
		return outboard.Errorf(outboard.Invalid, "", "%q has elements of ONNX's type %d, which the protocol does not have", s.Name, kind)
	}
	return l.readSymbols(s, tensor)
}

// readShape returns the element type and the dimensions, -1 for variable ones, of a description,
// which the caller still owns.
func (l *library) readShape(tensor uintptr) (kind uintptr, shape []int64, err error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	var element uint32
	var rank uintptr
	if err := l.call(fnGetTensorElementType, tensor, pin(&pins, &element)); err != nil {
		return 0, nil, err
	}
	if err := l.call(fnGetDimensionsCount, tensor, pin(&pins, &rank)); err != nil {
		return 0, nil, err
	}
	if rank > maxRank {
		return 0, nil, outboard.Errorf(outboard.Exhausted, "", "a tensor of %d dimensions, and %d are allowed", rank, maxRank)
	}
	shape = make([]int64, rank)
	return uintptr(element), shape, l.call(fnGetDimensions, tensor, pinSlice(&pins, shape), rank)
}

func (l *library) readSymbols(s *signature, tensor uintptr) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	names := make([]uintptr, len(s.Shape))
	if err := l.call(fnGetSymbolicDimensions, tensor, pinSlice(&pins, names), uintptr(len(names))); err != nil {
		return err
	}
	s.symbols = make([]string, len(names))
	for i, address := range names { // the texts belong to the library
		s.symbols[i] = goString(address)
		if s.Shape[i] < 0 {
			s.Shape[i] = -1
		}
	}
	return nil
}
