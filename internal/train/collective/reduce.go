package collective

import (
	"math"
	"unsafe"
)

// combine sets each element of to to its reduction with the element of from. Both have the same
// length, a multiple of the element's size, and are aligned to it.
func combine(to, from []byte, e Element, r Reduction) {
	switch e {
	case Float64:
		combineNumbers(view[float64](to), view[float64](from), r)
	case Float32:
		combineNumbers(view[float32](to), view[float32](from), r)
	case Float16:
		combineHalves(view[uint16](to), view[uint16](from), r, fromFloat16, toFloat16)
	case BFloat16:
		combineHalves(view[uint16](to), view[uint16](from), r, fromBFloat16, toBFloat16)
	case Int64:
		combineNumbers(view[int64](to), view[int64](from), r)
	case Int32:
		combineNumbers(view[int32](to), view[int32](from), r)
	case Int16:
		combineNumbers(view[int16](to), view[int16](from), r)
	case Int8:
		combineNumbers(view[int8](to), view[int8](from), r)
	case Uint8:
		combineNumbers(view[uint8](to), view[uint8](from), r)
	}
}

// divide divides each element by n.
func divide(b []byte, e Element, n int) {
	switch e {
	case Float64:
		divideAll(view[float64](b), float64(n))
	case Float32:
		divideAll(view[float32](b), float32(n))
	case Float16:
		divideHalves(view[uint16](b), float32(n), fromFloat16, toFloat16)
	case BFloat16:
		divideHalves(view[uint16](b), float32(n), fromBFloat16, toBFloat16)
	case Int64:
		divideAll(view[int64](b), int64(n))
	case Int32:
		divideAll(view[int32](b), int32(n))
	case Int16:
		divideWide(view[int16](b), n)
	case Int8:
		divideWide(view[int8](b), n)
	case Uint8:
		divideWide(view[uint8](b), n)
	}
}

// view returns the bytes as elements.
func view[T any](b []byte) []T {
	var t T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

type float interface{ float32 | float64 }

func combineNumbers[T float | integer](to, from []T, r Reduction) {
	from = from[:len(to)]
	switch r {
	case Sum, Average:
		for i := range to {
			to[i] += from[i]
		}
	// Of floats, min and max are NaN if one of their arguments is, as PyTorch's are.
	case Min:
		for i := range to {
			to[i] = min(to[i], from[i])
		}
	case Max:
		for i := range to {
			to[i] = max(to[i], from[i])
		}
	}
}

type integer interface {
	int64 | int32 | int16 | int8 | uint8
}

// combineHalves combines numbers of 16 bits as float32 and rounds each result.
func combineHalves(to, from []uint16, r Reduction, decode func(uint16) float32, encode func(float32) uint16) {
	from = from[:len(to)]
	for i := range to {
		a, b := decode(to[i]), decode(from[i])
		switch r {
		case Sum, Average:
			a += b
		case Min:
			a = min(a, b)
		case Max:
			a = max(a, b)
		}
		to[i] = encode(a)
	}
}

func divideAll[T float | int64 | int32](all []T, n T) {
	for i := range all {
		all[i] /= n
	}
}

// divideWide divides integers by a number that may exceed their range.
func divideWide[T int16 | int8 | uint8](all []T, n int) {
	for i := range all {
		all[i] = T(int(all[i]) / n)
	}
}

func divideHalves(all []uint16, n float32, decode func(uint16) float32, encode func(float32) uint16) {
	for i := range all {
		all[i] = encode(decode(all[i]) / n)
	}
}

func fromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBFloat16 rounds to nearest, ties to even.
func toBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func fromFloat16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // Subnormal: fraction * 2^-24.
		f := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// toFloat16 rounds to nearest, ties to even.
func toFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(b>>13&0x1ff)
	case b >= 0x47800000: // 65536 and above
		return sign | 0x7c00
	case b < 0x38800000: // Below the least normal number, 2^-14: the sum's last bits are the result.
		const magic = 0x3f000000 // 0.5, whose last bit is worth 2^-24
		sum := math.Float32frombits(b) + math.Float32frombits(magic)
		return sign | uint16(math.Float32bits(sum)-magic)
	}
	return sign | uint16((b+0xc8000fff+b>>13&1)>>13)
}
