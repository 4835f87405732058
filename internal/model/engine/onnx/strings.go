package onnx

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// stringValue creates a value with copies of the n elements of a tensor of BYTES.
func (r *run) stringValue(t *model.Tensor, n int) (uintptr, error) {
	texts := make([]uintptr, 0, min(n, len(t.Data)/4))
	rest := t.Data
	for range n {
		element, after, err := cutElement(rest)
		if err != nil {
			return 0, err
		}
		if bytes.IndexByte(element, 0) >= 0 {
			return 0, outboard.Errorf(outboard.Invalid, "", "element %d has a zero byte, which a string of ONNX may not have", len(texts))
		}
		texts, rest = append(texts, cString(&r.pins, string(element))), after
	}
	if len(rest) > 0 {
		return 0, outboard.Errorf(outboard.Invalid, "", "%d bytes follow the last of %d elements", len(rest), n)
	}
	const stringKind = 8
	value := new(uintptr)
	err := r.library.call(fnCreateTensorAsOrtValue, r.library.allocator,
		pinSlice(&r.pins, t.Shape), uintptr(len(t.Shape)), stringKind, pin(&r.pins, value))
	if err != nil || n == 0 {
		return *value, err
	}
	if err := r.library.call(fnFillStringTensor, *value, pinSlice(&r.pins, texts), uintptr(n)); err != nil {
		r.library.release(fnReleaseValue, *value)
		return 0, err
	}
	return *value, nil
}

// cutElement splits the first element off the data of a tensor of BYTES.
func cutElement(data []byte) (element, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, outboard.Errorf(outboard.Invalid, "", "the data ends within the length of an element")
	}
	size, rest := binary.LittleEndian.Uint32(data), data[4:]
	if uint64(size) > uint64(len(rest)) {
		return nil, nil, outboard.Errorf(outboard.Invalid, "", "an element of %d bytes, and %d follow", size, len(rest))
	}
	return rest[:size], rest[size:], nil
}

// strings copies the n elements of a value to the data of a tensor of BYTES.
func (r *run) strings(value uintptr, n int, allocate engine.Allocate) ([]byte, error) {
	if n == 0 {
		return allocate(0)
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	var size uintptr
	if err := r.library.call(fnGetStringTensorDataLength, value, pin(&pins, &size)); err != nil {
		return nil, err
	}
	if size > math.MaxUint32 {
		return nil, outboard.Errorf(outboard.Exhausted, "", "%d bytes of text", size)
	}
	text, offsets := make([]byte, size+1), make([]uintptr, n)
	err := r.library.call(fnGetStringTensorContent, value, pinSlice(&pins, text), size, pinSlice(&pins, offsets), uintptr(n))
	if err != nil {
		return nil, err
	}
	data, err := allocate(int(size) + 4*n)
	if err != nil {
		return nil, err
	}
	for at, i := 0, 0; i < n; i++ {
		end := size
		if i+1 < n {
			end = offsets[i+1]
		}
		binary.LittleEndian.PutUint32(data[at:], uint32(end-offsets[i]))
		at += 4 + copy(data[at+4:], text[offsets[i]:end])
	}
	return data, nil
}
