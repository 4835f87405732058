package model

import "math"

// Float16 returns the bits of the IEEE 754 half-precision number that is nearest to v.
func Float16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	exponent, fraction := int(bits>>23&0xff)-127+15, bits&0x7fffff
	switch {
	case bits&0x7fffffff > 0x7f800000:
		return sign | 0x7e00 // NaN
	case exponent >= 0x1f:
		return sign | 0x7c00 // infinity
	case exponent <= 0:
		if exponent < -10 {
			return sign
		}
		// A subnormal number: its leading bit is explicit.
		return sign | uint16(roundShift(fraction|0x800000, uint(14-exponent)))
	}
	// Rounding may carry into the exponent, which is correct then.
	return sign + uint16(uint32(exponent)<<10+roundShift(fraction, 13))
}

// roundShift shifts v right and rounds to nearest, ties to even.
func roundShift(v uint32, by uint) uint32 {
	half := uint32(1) << (by - 1)
	rest, v := v&(1<<by-1), v>>by
	if rest > half || rest == half && v&1 == 1 {
		v++
	}
	return v
}

// FromFloat16 returns the number with the bits of an IEEE 754 half-precision number.
func FromFloat16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0:
		v := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// BFloat16 returns the bits of the bfloat16 number that is nearest to v.
func BFloat16(v float32) uint16 {
	bits := math.Float32bits(v)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40 // a NaN stays a NaN
	}
	return uint16(roundShift(bits, 16))
}

// FromBFloat16 returns the number with the bits of a bfloat16 number.
func FromBFloat16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
