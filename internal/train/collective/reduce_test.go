package collective

import (
	"math"
	"testing"
)

func TestHalvesSurviveTheWayThroughFloat32(t *testing.T) {
	for h := range 1 << 16 {
		if f := fromFloat16(uint16(h)); f == f && toFloat16(f) != uint16(h) {
			t.Fatalf("float16 %#04x is %v, which is %#04x", h, f, toFloat16(f))
		}
		if f := fromBFloat16(uint16(h)); f == f && toBFloat16(f) != uint16(h) {
			t.Fatalf("bfloat16 %#04x is %v, which is %#04x", h, f, toBFloat16(f))
		}
	}
}

// Values from IEEE 754-2008 and the definition of rounding to nearest, ties to even.
func TestHalvesRoundToNearestEven(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		f       float32
		f16, bf uint16
	}{
		{0, 0, 0},
		{1, 0x3c00, 0x3f80},
		{-2, 0xc000, 0xc000},
		{65504, 0x7bff, 0x4780},
		{65519.996, 0x7bff, 0x4780},
		{65520, 0x7c00, 0x4780},
		{float32(math.Inf(-1)), 0xfc00, 0xff80},
		{1 + 1.0/2048, 0x3c00, 0x3f80},        // a tie: to even
		{1 + 3.0/2048, 0x3c02, 0x3f80},        // a tie: to even, upwards
		{1 + 1.0/2048 + 1e-6, 0x3c01, 0x3f80}, // above the tie
		{1 + 1.0/256, 0x3c04, 0x3f80},         // bfloat16's tie
		{1 + 3.0/256, 0x3c0c, 0x3f82},         // bfloat16's tie, upwards
		{5.9604645e-08, 0x0001, 0x3380},       // the least subnormal number
		{2.9802322e-08, 0x0000, 0x3300},       // half of it: to even
		{6.0975552e-05, 0x03ff, 0x3880},       // the largest subnormal number
		{math.MaxFloat32, 0x7c00, 0x7f80},     // overflow
		{-math.SmallestNonzeroFloat32, 0x8000, 0x8000},
	} {
		if got := toFloat16(c.f); got != c.f16 {
			t.Errorf("toFloat16(%v) = %#04x, want %#04x", c.f, got, c.f16)
		}
		if got := toBFloat16(c.f); got != c.bf {
			t.Errorf("toBFloat16(%v) = %#04x, want %#04x", c.f, got, c.bf)
		}
	}
	if f := fromFloat16(toFloat16(nan)); f == f {
		t.Errorf("NaN became %v", f)
	}
	if f := fromBFloat16(toBFloat16(nan)); f == f {
		t.Errorf("NaN became %v", f)
	}
}
