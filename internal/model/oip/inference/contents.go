package inference

import (
	"encoding/binary"
	"math"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// An integer is an element of typed contents, which may be wider than the tensor's data type.
type integer interface {
	~int32 | ~uint32 | ~int64 | ~uint64
}

// TypedData returns the bytes of n elements of typed contents. The protocol has no typed contents
// for FP16 and BF16.
func TypedData(c *InferTensorContents, kind model.DataType, n int) ([]byte, error) {
	data, count, err := convertContents(c, kind)
	switch {
	case err != nil:
		return nil, err
	case count != n:
		return nil, outboard.Errorf(outboard.Invalid, "", "its contents have %d elements of %v, its shape has %d", count, kind, n)
	}
	return data, nil
}

func convertContents(c *InferTensorContents, kind model.DataType) (data []byte, count int, err error) {
	switch kind {
	case model.FP16, model.BF16, model.Invalid:
		return nil, 0, outboard.Errorf(outboard.Invalid, "", "the protocol has no contents of %v: use raw_input_contents", kind)
	case model.Bool:
		for _, v := range c.GetBoolContents() {
			data = append(data, boolByte(v))
		}
		return data, len(c.GetBoolContents()), nil
	case model.Int8, model.Int16, model.Int32:
		data, err = narrow(c.GetIntContents(), kind)
		return data, len(c.GetIntContents()), err
	case model.Int64:
		data, err = narrow(c.GetInt64Contents(), kind)
		return data, len(c.GetInt64Contents()), err
	case model.Uint8, model.Uint16, model.Uint32:
		data, err = narrow(c.GetUintContents(), kind)
		return data, len(c.GetUintContents()), err
	case model.Uint64:
		data, err = narrow(c.GetUint64Contents(), kind)
		return data, len(c.GetUint64Contents()), err
	case model.FP32:
		for _, v := range c.GetFp32Contents() {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return data, len(c.GetFp32Contents()), nil
	case model.FP64:
		for _, v := range c.GetFp64Contents() {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
		}
		return data, len(c.GetFp64Contents()), nil
	default:
		for _, v := range c.GetBytesContents() {
			data = append(binary.LittleEndian.AppendUint32(data, uint32(len(v))), v...)
		}
		return data, len(c.GetBytesContents()), nil
	}
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// narrow returns integers as elements of a data type, or an error if an integer does not fit it.
func narrow[T integer](list []T, kind model.DataType) ([]byte, error) {
	size := kind.Size()
	data := make([]byte, 0, len(list)*size)
	for i, v := range list {
		if back := widen[T](uint64(v), kind); back != v {
			return nil, outboard.Errorf(outboard.Invalid, "", "element %d is %d, which is no %v", i, v, kind)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(v))
		data = append(data, b[:size]...)
	}
	return data, nil
}

// widen returns the integer that the low bytes of v represent in a data type.
func widen[T integer](v uint64, kind model.DataType) T {
	unused := 64 - 8*kind.Size()
	if kind >= model.Int8 && kind <= model.Int64 {
		return T(int64(v<<unused) >> unused)
	}
	return T(v << unused >> unused)
}

// ContentsOf returns the elements of a tensor as typed contents.
func ContentsOf(t *model.Tensor) (*InferTensorContents, error) {
	c := &InferTensorContents{}
	switch t.Type {
	case model.Bool:
		for _, b := range t.Data {
			c.BoolContents = append(c.BoolContents, b != 0)
		}
	case model.Int8, model.Int16, model.Int32:
		c.IntContents = elements[int32](t)
	case model.Int64:
		c.Int64Contents = elements[int64](t)
	case model.Uint8, model.Uint16, model.Uint32:
		c.UintContents = elements[uint32](t)
	case model.Uint64:
		c.Uint64Contents = elements[uint64](t)
	case model.FP32:
		for _, v := range elements[uint32](t) {
			c.Fp32Contents = append(c.Fp32Contents, math.Float32frombits(v))
		}
	case model.FP64:
		for _, v := range elements[uint64](t) {
			c.Fp64Contents = append(c.Fp64Contents, math.Float64frombits(v))
		}
	case model.Bytes:
		for rest := t.Data; len(rest) > 0; {
			if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
				return nil, outboard.Errorf(outboard.Other, "infer", "output %q is truncated", t.Name)
			}
			end := 4 + int(binary.LittleEndian.Uint32(rest))
			c.BytesContents, rest = append(c.BytesContents, rest[4:end:end]), rest[end:]
		}
	default:
		return nil, outboard.Errorf(outboard.Other, "infer", "output %q: the protocol has no contents of %v", t.Name, t.Type)
	}
	return c, nil
}

// elements returns the whole elements of a tensor, whose type has a fixed size, as integers.
func elements[T integer](t *model.Tensor) []T {
	size := t.Type.Size()
	list := make([]T, 0, len(t.Data)/size)
	for at := 0; at+size <= len(t.Data); at += size {
		var b [8]byte
		copy(b[:], t.Data[at:at+size])
		list = append(list, widen[T](binary.LittleEndian.Uint64(b[:]), t.Type))
	}
	return list
}
