package optimize

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "github.com/outboard-run/outboard/internal/function/assemble"
	"github.com/outboard-run/outboard/internal/wasmbin"
)

func TestPolish(t *testing.T) {
	x := []byte{opLocalGet, 0}
	tests := map[string]struct{ code, want []byte }{
		"negated comparison":    {[]byte{0x48, 0x45}, []byte{0x4e}},
		"negated twice":         {[]byte{0x48, 0x45, 0x45}, []byte{0x48}},
		"through 64 bits":       {[]byte{0x53, 0xad, 0x50, 0x45}, []byte{0x53}},
		"zero, negated":         {[]byte{0x50, 0x45}, []byte{0x42, 0, 0x52}},
		"zero, negated, 32":     {[]byte{0x45, 0x45}, []byte{0x41, 0, 0x47}},
		"wide and narrow again": {[]byte{0xad, 0xa7, 0x68}, []byte{0x68}},
		"narrow and wide again": {[]byte{0xa7, 0xad}, []byte{0xa7, 0xad}},
		"wide constant":         {[]byte{0x42, 0x80, 0x7f, 0xc4}, []byte{0x42, 0x80, 0x7f}},
		"cut constant":          {[]byte{0x42, 0x80, 0x80, 0x80, 0x80, 0x08, 0xa7}, []byte{0x41, 0x80, 0x80, 0x80, 0x80, 0x78}},
		"a block between":       {[]byte{0x48, 0x02, 0x40, 0x0b, 0x45}, []byte{0x48, 0x02, 0x40, 0x0b, 0x45}},
		"floats":                {[]byte{0x63, 0x45}, []byte{0x63, 0x45}}, // not a number is neither
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newBodyOptimizer(&module{})
			got := f.combineInstructions(slices.Concat([]byte{0}, x, tt.code, []byte{opEnd}))
			if diff := cmp.Diff(slices.Concat([]byte{0}, x, tt.want, []byte{opEnd}), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// drawChain draws code that makes an i32 of f's parameter, an i32.
func drawChain(t *rapid.T) []byte {
	code, wide := []byte{opLocalGet, 0}, false
	constant := func() []byte {
		n := rapid.SampledFrom([]int64{0, 1, -1, 1 << 31, 1<<32 + 3, -1 << 40}).Draw(t, "constant")
		if wide {
			return wasmbin.AppendSigned([]byte{opI64Const}, n)
		}
		return I32Const(int32(n))
	}
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		choice := rapid.IntRange(0, 4).Draw(t, "step")
		switch {
		case choice == 0: // a comparison
			least := byte(0x46)
			code = append(code, constant()...)
			if wide {
				least = 0x51
			}
			code, wide = append(code, least+byte(rapid.IntRange(0, 9).Draw(t, "comparison"))), false
		case choice == 1 && wide:
			code, wide = append(code, opI64Eqz), false
		case choice == 1:
			code = append(code, opI32Eqz)
		case choice == 2 && wide:
			code, wide = append(code, opI32WrapI64), false
		case choice == 2:
			code, wide = append(code, opI64ExtendU), true
		case choice == 3 && wide:
			code = append(append(code, constant()...), opI64Extend32S, 0x7c)
		case choice == 3:
			code = slices.Concat(code, wasmbin.AppendSigned([]byte{opI64Const}, 1<<33+5), []byte{opI32WrapI64, 0x6a})
		case !wide:
			code = slices.Concat(code, []byte{opIf, I32}, constant(), []byte{0x05}, constant(), []byte{opEnd})
		}
	}
	if wide {
		code = append(code, opI32WrapI64)
	}
	return code
}

func TestPolishedDoesTheSame(t *testing.T) {
	e := newEngines(t)
	rapid.Check(t, func(rt *rapid.T) {
		e.same(t, File(Types(Type([]byte{I32}, []byte{I32})), Functions(0), Exports(Export("f", 0, 0)), Code(Body(drawChain(rt)...))))
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
}
