package optimize

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	. "github.com/outboard-run/outboard/internal/function/assemble"
	"github.com/outboard-run/outboard/internal/wasmbin"
)

// The variables of the functions that are drawn: the number of a segment, what was
// computed so far, how many segments ran.
const (
	varPC, varSum, varSteps = 0, 1, 2
	mostSteps               = 300
)

// drawTangle draws a function like those that Go makes: f(pc, sum) i32.
func drawTangle(t *rapid.T) []byte {
	n := rapid.IntRange(2, 12).Draw(t, "segments")
	var table []uint32
	for segment := range n {
		for range rapid.IntRange(1, 2).Draw(t, "numbers") {
			table = append(table, uint32(segment))
		}
	}
	code := []byte{opBlock, typeVoid, opLoop, typeVoid}
	for range n {
		code = append(code, opBlock, typeVoid)
	}
	code = wasmbin.AppendU32(append(code, opLocalGet, varPC, opBrTable), uint32(len(table)-1))
	for _, segment := range table {
		code = wasmbin.AppendU32(code, segment)
	}
	code = append(code, opEnd)
	for segment := range n {
		code = append(code, drawSegment(t, segment, n, len(table))...)
		code = append(code, opEnd)
	}
	code = slices.Concat(code, add(1000), []byte{opEnd, opLocalGet, varSum})
	return BodyWith([]byte{I32}, code...)
}

// add is sum = sum*31 + n.
func add(n int32) []byte {
	return slices.Concat([]byte{opLocalGet, varSum, opI32Const, 31, 0x6c}, I32Const(n), []byte{0x6a, opLocalSet, varSum})
}

func drawSegment(t *rapid.T, segment, segments, numbers int) []byte {
	loop := uint32(segments - 1 - segment) // its label, and that of what is around it is one more
	code := add(int32(segment))
	// if steps++ > most { br out }
	code = slices.Concat(code, []byte{opLocalGet, varSteps, opI32Const, 1, 0x6a, opLocalTee, varSteps}, I32Const(mostSteps), []byte{0x4a, opIf, typeVoid})
	code = append(wasmbin.AppendU32(append(code, opBr), loop+2), opEnd)
	for range rapid.IntRange(0, 3).Draw(t, "statements") {
		code = append(code, drawStatement(t, loop, numbers)...)
	}
	return code
}

func drawStatement(t *rapid.T, loop uint32, numbers int) []byte {
	jump := func(inside uint32) []byte {
		number := int32(rapid.IntRange(-1, numbers+1).Draw(t, "number"))
		return wasmbin.AppendU32(append(I32Const(number), opLocalSet, varPC, opBr), loop+inside)
	}
	// if sum & mask, a part that is executed at times
	condition := []byte{opLocalGet, varSum, opI32Const, byte(rapid.SampledFrom([]int{1, 2, 3, 4}).Draw(t, "mask")), 0x71}
	statements := []func() []byte{
		func() []byte { return slices.Concat(condition, []byte{opIf, typeVoid}, jump(1), []byte{opEnd}) },
		func() []byte {
			return slices.Concat(condition, []byte{opIf, typeVoid}, add(5), []byte{0x05}, jump(1), []byte{opEnd})
		},
		func() []byte { return jump(0) },
		func() []byte {
			return []byte{opLocalGet, varSum, opLocalSet, varPC, opI32Const, 7, opLocalGet, varPC, 0x6a, opLocalSet, varSum}
		},
		func() []byte { return wasmbin.AppendU32(slices.Concat(condition, []byte{opBrIf}), loop+1) },
		func() []byte {
			return slices.Concat([]byte{opBlock, typeVoid}, condition, []byte{opBrIf, 0}, jump(1), []byte{opEnd})
		},
		func() []byte { return []byte{opLocalGet, varSum, opReturn} },
		func() []byte {
			return []byte{opLoop, typeVoid, opLocalGet, varSum, opI32Const, 3, 0x76, opLocalTee, varSum, opBrIf, 0, opEnd}
		},
		func() []byte { return slices.Concat([]byte{opI32Const, 0, 0x42, 3, opI64Store, 3, 0}, add(9)) }, // a return address, perhaps
	}
	return statements[rapid.IntRange(0, len(statements)-1).Draw(t, "statement")]()
}

// tangleFile is a module with the tangle f and g(x), which is f(0, x).
func tangleFile(tangle []byte, exports ...[]byte) []byte {
	if len(exports) == 0 {
		exports = [][]byte{Export("f", 0, 0), Export("g", 0, 1)}
	}
	return File(
		Types(Type([]byte{I32, I32}, []byte{I32}), Type([]byte{I32}, []byte{I32})), Functions(0, 1), Memory(1, 1),
		Exports(exports...), Code(tangle, Body(opI32Const, 0, opLocalGet, 0, 0x10, 0)),
	)
}

// goMade is the section by which a module says that Go made it.
var goMade = Raw(0, slices.Concat(Name("producers"), []byte{1}, Name("language"), []byte{1}, Name("Go"), Name("go1.26")))

// TestTangles compares functions with and without direct jumps: entered anywhere, and
// at their beginning if Go seems to have made them.
func TestTangles(t *testing.T) {
	e, straight, narrowed := newEngines(t), 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		tangle := drawTangle(rt)
		made := slices.Concat(tangleFile(tangle, Export("g", 0, 1)), goMade)
		e.same(t, made)
		if len(code(t, made, Options{})) != len(code(t, made[:len(made)-len(goMade)], Options{})) {
			narrowed++
		}
		file := tangleFile(tangle, Export("f", 0, 0), Export("g", 0, 1))
		e.same(t, file)
		if !bytes.Equal(code(t, file, Options{}), code(t, file, Options{KeepDispatchLoops: true})) {
			straight++
		}
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
	if straight < 20 || narrowed < 5 {
		t.Errorf("the jumps of %d functions became direct, and %d are entered in fewer places if Go made them", straight, narrowed)
	}
}

// code is what becomes of a file.
func code(t *testing.T, file []byte, o Options) []byte {
	t.Helper()
	r, err := Module(file, o)
	if err != nil {
		t.Fatal(err)
	}
	return r.Code
}

// TestCutShort cuts bodies anywhere: each step takes them as they are, and leaves it to
// the walk to refuse them.
func TestCutShort(t *testing.T) {
	bodies := map[string]func(*rapid.T) []byte{
		"tangle": drawTangle, "frame": drawFrame,
		"rounds": func(t *rapid.T) []byte {
			return BodyWith([]byte{I32}, append([]byte{opLoop, typeVoid}, drawRounds(t)...)...)
		},
	}
	for name, draw := range bodies {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				r := wasmbin.Reader{Data: draw(rt)}
				r.U32() // its length
				body := r.Data[r.Off:]
				body = body[:rapid.IntRange(0, len(body)).Draw(rt, "cut")]
				for _, made := range []bool{true, false} {
					m := &module{params: []uint32{1}, typeOf: []uint32{0, 0}, functions: 2}
					f := newBodyOptimizer(m)
					f.optimize(body, 1, made)
					f.lowerConditionals(body)
					f.unrollLoops(body)
					f.combineInstructions(body)
				}
			})
		})
	}
}
