package optimize

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	. "github.com/outboard-run/outboard/internal/function/assemble"
)

// The variables of the functions that are drawn here, behind the parameter and the
// stack pointer: two pointers and a sum, all of 64 bits.
const (
	varA, varB, varTotal = 2, 3, 4
	stackTop             = 4096
	frameSize            = 64
)

// drawFrame draws a function like Go's: it makes room on the stack, reads and writes
// there and by way of pointers, calls itself once with a return address, and gives the
// room back.
func drawFrame(t *rapid.T) []byte {
	code := []byte{opGlobalGet, stackGlobal, opLocalSet, stackLocal}
	code = append(code, move(opI32Sub, frameSize)...)
	code = append(code, opI64Const, 0xd0, 0, opLocalSet, varA, opI64Const, 0xe0, 0, opLocalSet, varB)
	for range rapid.IntRange(1, 12).Draw(t, "statements") {
		code = append(code, drawAccess(t, 2)...)
	}
	code = append(code, move(opI32Add, frameSize)...)
	code = append(code, move(opI32Add, returnSize)...)
	return BodyWith([]byte{I32, I64, I64, I64}, slices.Concat(code, []byte{opLocalGet, varTotal, opI32WrapI64})...)
}

// move adds to the stack pointer, as Go does.
func move(op, by byte) []byte {
	return slices.Concat([]byte{opLocalGet, stackLocal}, I32Const(int32(by)), []byte{op, opLocalTee, stackLocal, opGlobalSet, stackGlobal})
}

// drawAddress draws the place of eight bytes.
func drawAddress(t *rapid.T) []byte {
	local := rapid.SampledFrom([]byte{stackLocal, varA, varB}).Draw(t, "base")
	add := byte(8 * rapid.IntRange(0, 5).Draw(t, "add"))
	switch {
	case local != stackLocal && add == 0:
		return []byte{opLocalGet, local, opI32WrapI64}
	case local != stackLocal:
		return []byte{opLocalGet, local, opI64Const, add, opI64Add, opI32WrapI64}
	case add == 0:
		return []byte{opLocalGet, local}
	}
	return []byte{opLocalGet, local, opI64ExtendU, opI64Const, add, opI64Add, opI32WrapI64}
}

func drawOffset(t *rapid.T) byte { return byte(8 * rapid.IntRange(0, 3).Draw(t, "offset")) }

func drawLoad(t *rapid.T) []byte {
	return slices.Concat(drawAddress(t), []byte{0x29, 3, drawOffset(t)})
}

func drawAccess(t *rapid.T, depth int) []byte {
	statements := []func() []byte{
		func() []byte {
			return slices.Concat([]byte{opLocalGet, varTotal, opI64Const, 31, 0x7e}, drawLoad(t), []byte{opI64Add, opLocalSet, varTotal})
		},
		func() []byte {
			return slices.Concat(drawAddress(t), drawLoad(t), []byte{opLocalGet, varTotal, opI64Add, opI64Store, 3, drawOffset(t)})
		},
		func() []byte { // an address on the stack that escapes
			return []byte{opLocalGet, stackLocal, opI64ExtendU, opI64Const, byte(8 * rapid.IntRange(0, 3).Draw(t, "escapes")), opI64Add, opLocalSet, varA}
		},
		func() []byte {
			return []byte{opLocalGet, varB, opI64Const, 8, opI64Add, opLocalTee, varB, opI32WrapI64, 0x29, 3, 0, opLocalSet, varTotal}
		},
		func() []byte { // a store whose value changes the pointer
			return []byte{opLocalGet, varA, opI32WrapI64, opI64Const, 0xf0, 0, opLocalTee, varA, opI64Store, 3, 0}
		},
	}
	if depth > 0 {
		inside := func() []byte { return slices.Concat(drawAccess(t, depth-1), drawAccess(t, depth-1)) }
		statements = append(
			statements,
			func() []byte {
				return slices.Concat([]byte{opLocalGet, varTotal, opI32WrapI64, opI32Const, 1, 0x71, opIf, typeVoid}, inside(), []byte{opEnd})
			},
			func() []byte {
				return slices.Concat([]byte{opLocalGet, varTotal, opI32WrapI64, opI32Const, 2, 0x71, opIf, typeVoid}, inside(), []byte{opElse}, inside(), []byte{opEnd})
			},
			func() []byte {
				return slices.Concat([]byte{opBlock, typeVoid}, inside(), []byte{opLocalGet, varTotal, opI32WrapI64, opI32Const, 4, 0x71, opIf, typeVoid, opBr, 1, opEnd}, inside(), []byte{opEnd})
			},
			func() []byte { // a loop of two rounds
				count := []byte{opLocalGet, 0, opI32Const, 1, opI32Add, opLocalTee, 0, opI32Const, 1, 0x71, opBrIf, 0}
				return slices.Concat([]byte{opLoop, typeVoid}, inside(), count, []byte{opEnd})
			},
		)
	}
	return statements[rapid.IntRange(0, len(statements)-1).Draw(t, "statement")]()
}

// frameFile is a module with such a function, and one that calls it with the stack
// pointer where it belongs.
func frameFile(frame []byte) []byte {
	address := []byte{0xc0, 0x80, 0x80, 0} // 64
	call := slices.Concat(
		I32Const(stackTop-returnSize), []byte{opGlobalSet, stackGlobal, opLocalGet, 0, 0x10, 0},
		[]byte{opGlobalGet, stackGlobal, opI32Add}, []byte{opI32Const}, address, []byte{opI32Add},
	)
	return slices.Concat(File(
		Types(Type([]byte{I32}, []byte{I32})), Functions(0, 0), Memory(1, 1), Globals(Variable(I32, true, slices.Concat([]byte{opI32Const}, address)...)),
		Exports(Export("g", 0, 1), Export("memory", 2, 0)), Code(frame, Body(call...)),
	), goMade)
}

// TestAddresses compares functions with and without other addresses.
func TestAddresses(t *testing.T) {
	e, changed := newEngines(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		file := frameFile(drawFrame(rt))
		if _, ok := e.original(file, trace{}); !ok {
			rt.Fatal("the engine does not take the original")
		}
		e.same(t, file)
		if !bytes.Equal(code(t, file, Options{Unmetered: true}), code(t, file[:len(file)-len(goMade)], Options{Unmetered: true})) {
			changed++
		}
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
	if changed < 50 {
		t.Errorf("the addresses of only %d functions changed", changed)
	}
}

// TestConditions looks at what becomes of an if, and of a branch.
func TestConditions(t *testing.T) {
	for name, test := range map[string]struct{ code, want []byte }{
		"branch":           {[]byte{opBlock, typeVoid, opLocalGet, 0, opBrIf, 0, opEnd}, []byte{opBlock, typeVoid, opLocalGet, 0, opBrIf, 0, opEnd}},
		"compared":         {[]byte{opBlock, typeVoid, opLocalGet, 0, opI32Eqz, opBrIf, 0, opEnd}, []byte{opBlock, typeVoid, opLocalGet, 0, opI32Eqz, opIf, typeVoid, opBr, 1, opElse, opEnd, opEnd}},
		"compared floats":  {[]byte{opLoop, typeVoid, 0x66, opBrIf, 0, opEnd}, []byte{opLoop, typeVoid, 0x66, opIf, typeVoid, opBr, 1, opElse, opEnd, opEnd}},
		"with a value":     {[]byte{opBlock, I32, opLocalGet, 0, opLocalGet, 0, opI32Eqz, opBrIf, 0, opEnd, opDrop}, []byte{opBlock, I32, opLocalGet, 0, opLocalGet, 0, opI32Eqz, opBrIf, 0, opEnd, opDrop}},
		"return":           {[]byte{opLocalGet, 0, opI32Eqz, opBrIf, 0}, []byte{opLocalGet, 0, opI32Eqz, opBrIf, 0}},
		"branch to itself": {[]byte{opLocalGet, 0, opIf, typeVoid, opBr, 0, opEnd}, []byte{opLocalGet, 0, opIf, typeVoid, opBr, 0, opElse, opEnd}},
		"without else":     {[]byte{opLocalGet, 0, opIf, typeVoid, opNop, opEnd}, []byte{opLocalGet, 0, opIf, typeVoid, opNop, opElse, opEnd}},
		"with else":        {[]byte{opLocalGet, 0, opIf, typeVoid, opElse, opNop, opEnd}, []byte{opLocalGet, 0, opIf, typeVoid, opElse, opNop, opEnd}},
		"with a result":    {[]byte{opLocalGet, 0, opIf, I32, opLocalGet, 0, opElse, opLocalGet, 0, opEnd, opDrop}, []byte{opLocalGet, 0, opIf, I32, opLocalGet, 0, opElse, opLocalGet, 0, opEnd, opDrop}},
	} {
		f := newBodyOptimizer(&module{})
		got := f.lowerConditionals(slices.Concat([]byte{0}, test.code, []byte{opEnd}))
		if want := slices.Concat([]byte{0}, test.want, []byte{opEnd}); !bytes.Equal(want, got) {
			t.Errorf("%s: got %x, want %x", name, got, want)
		}
	}
}
