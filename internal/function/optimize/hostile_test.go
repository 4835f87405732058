package optimize

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	. "github.com/outboard-run/outboard/internal/function/assemble"
	"github.com/outboard-run/outboard/internal/wasmbin"
)

// hostileBodies are bodies that are cheap to write and expensive to process.
func hostileBodies() map[string][]byte {
	times := func(n int, code ...byte) []byte { return bytes.Repeat(code, n) }
	one := []byte{I32}
	return map[string][]byte{
		"140,000 loops":         BodyWith(one, times(140_000, opLoop, typeVoid, opLocalGet, 0, opBrIf, 0, opEnd)...),
		"a million nops":        BodyWith(one, times(1_000_000, opNop)...),
		"deep loops":            BodyWith(one, slices.Concat(times(100_000, opLoop, typeVoid), times(100_000, opEnd))...),
		"deep blocks":           BodyWith(one, slices.Concat(times(200_000, opBlock, typeVoid), times(200_000, opEnd))...),
		"ifs":                   BodyWith(one, times(100_000, opLocalGet, 0, opIf, typeVoid, opEnd)...),
		"huge br_table":         BodyWith(one, slices.Concat([]byte{opBlock, typeVoid, opLocalGet, 0, opBrTable}, U32(500_000), times(500_001, 0), []byte{opEnd})...),
		"deep operand stack":    BodyWith(one, slices.Concat(times(200_000, opLocalGet, 0), times(200_000, opLocalSet, 0))...),
		"accesses":              BodyWith(one, times(100_000, opLocalGet, 0, opI32Load, 0, 0, opLocalSet, 0)...),
		"pointers":              BodyWith(times(20_000, I64), manyPointers(20_000)...),
		"locals and loops":      BodyWith(times(20_000, I32), times(20_000, opLoop, typeVoid, opLocalGet, 0, opBrIf, 0, opEnd)...),
		"return addresses":      BodyWith(one, times(30_000, opLocalGet, 1, opI32Const, 8, opI32Sub, opLocalTee, 1, opGlobalSet, 0, opLocalGet, 1, opI64Const, 0, opI64Store, 0, 0)...),
		"dispatch, forward":     dispatchLoopOf(20_000, func(i, n int) int { return n - 1 }),
		"dispatch, backward":    dispatchLoopOf(20_000, func(i, _ int) int { return i / 2 }),
		"dispatch, nested":      dispatchLoopOf(20_000, func(i, n int) int { return max(n-1-i, 0) }),
		"dispatch, into loops":  dispatchLoopOf(20_000, func(i, n int) int { return (i * 7919) % n }),
		"dispatch, empty tails": dispatchLoopOf(20_000, func(i, n int) int { return -1 }),
	}
}

// manyPointers narrows a pointer in each of n locals and opens a block behind each.
func manyPointers(n int) []byte {
	var code []byte
	for i := range n {
		code = wasmbin.AppendU32(append(code, opLocalGet), uint32(i+1))
		code = append(code, opI32WrapI64, 0x29, 0, 0, opDrop, opBlock, typeVoid, opEnd)
	}
	return code
}

// dispatchLoopOf is a dispatch loop of n segments, each of which may jump to another one; -1 is none.
func dispatchLoopOf(n int, jump func(i, n int) int) []byte {
	code := []byte{opBlock, typeVoid, opLoop, typeVoid}
	code = append(code, bytes.Repeat([]byte{opBlock, typeVoid}, n)...)
	code = wasmbin.AppendU32(append(code, opLocalGet, 2, opBrTable), uint32(n-1))
	for i := range n {
		code = wasmbin.AppendU32(code, uint32(i))
	}
	code = append(code, opEnd)
	for i := range n {
		if to := jump(i, n); to >= 0 {
			code = append(code, opLocalGet, 0, opIf, typeVoid)
			code = append(wasmbin.AppendSigned(append(code, opI32Const), int64(to)), opLocalSet, 2, opBr)
			code = append(wasmbin.AppendU32(code, uint32(n-i)), opEnd)
		}
		code = append(code, opEnd)
	}
	return BodyWith([]byte{I32, I32}, append(code, opEnd)...)
}

// TestHostileFunctionBodies processes hostile functions, as Go's and as others': the work is within the
// budget, and what would take too long to compile is refused for that reason and no other.
func TestHostileFunctionBodies(t *testing.T) {
	for name, body := range hostileBodies() {
		file := File(Types(Type([]byte{I32}, nil)), Functions(0), Memory(1, 1), Globals(Variable(I32, true, opI32Const, 0)), Exports(Export("f", 0, 0)), Code(body))
		for _, file := range [][]byte{file, slices.Concat(file, goMade)} {
			m, err := parse(file)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			bodies, ok := m.bodies()
			if !ok {
				t.Fatalf("%s: the code section is malformed", name)
			}
			f := newBodyOptimizer(m)
			out := f.optimize(bodies[0], 1, m.fromGo())
			// A pass notices that the budget is used up at the next instruction or table.
			if most := f.budget.limit + 8*int64(len(body)); f.budget.used > most {
				t.Errorf("%s: %d units of work: %d are the limit", name, f.budget.used, most)
			}
			if len(out) > 2*len(body)+growthAllowance {
				t.Errorf("%s: %d bytes became %d", name, len(body), len(out))
			}
			if _, err := Module(file, Options{}); err != nil && !errors.Is(err, errTooCostly) {
				t.Errorf("%s: refused because of %v", name, err)
			}
		}
	}
}

// TestHostileModules processes modules of many functions.
func TestHostileModules(t *testing.T) {
	const n = 50_000
	bodies, chain := make([][]byte, n), make([][]byte, n)
	for i := range n {
		bodies[i] = Body(opLoop, typeVoid, opBr, 0, opEnd)
		chain[i] = Body(wasmbin.AppendU32([]byte{opCall}, uint32((i+1)%n))...)
	}
	functions := Raw(wasmbin.SectionFunction, slices.Concat(U32(n), make([]byte, n)))
	for name, code := range map[string][]byte{"loops": Code(bodies...), "a cycle of calls": Code(chain...)} {
		file := File(Types(Type(nil, nil)), functions, Memory(1, 1), Exports(Export("f", 0, 0)), code)
		r, err := Module(file, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(r.Code) > 8*len(file)+maxCodeGrowth { // a meter check is larger than these functions
			t.Errorf("%s: %d bytes became %d", name, len(file), len(r.Code))
		}
		if most := int64(minWork + workPerByte*len(file)); r.Work > most {
			t.Errorf("%s: %d units of work: %d are the limit", name, r.Work, most)
		}
	}
}

// TestManyLocals refuses a small module whose functions declare more locals together than the compiler
// has memory for.
func TestManyLocals(t *testing.T) {
	const n = 20_000
	code := slices.Concat(U32(1), U32(maxLocals), []byte{I32, opEnd})
	body := slices.Concat(U32(uint32(len(code))), code)
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = body
	}
	functions := Raw(wasmbin.SectionFunction, slices.Concat(U32(n), make([]byte, n)))
	file := File(Types(Type(nil, nil)), functions, Memory(1, 1), Exports(Export("f", 0, 0)), Code(bodies...))
	if _, err := Module(file, Options{}); !errors.Is(err, errTooCostly) {
		t.Errorf("a module of %d bytes with %d locals: %v", len(file), n*maxLocals, err)
	}
	file = File(Types(Type(nil, nil)), Functions(0), Memory(1, 1), Exports(Export("f", 0, 0)), Code(body))
	if _, err := Module(file, Options{}); err != nil {
		t.Errorf("one such function: %v", err)
	}
}

// TestManyFunctions charges for functions that do nothing.
func TestManyFunctions(t *testing.T) {
	const n = 1000
	functions := Raw(wasmbin.SectionFunction, slices.Concat(U32(n), make([]byte, n)))
	code := Raw(wasmbin.SectionCode, slices.Concat(U32(n), bytes.Repeat(Body(), n)))
	file := File(Types(Type(nil, nil)), functions, Memory(1, 1), Exports(Export("f", 0, 0)), code)
	if _, err := Module(file, Options{MaxCompileCost: n*unitsPerFunction - 1}); !errors.Is(err, errTooCostly) {
		t.Errorf("%d functions: %v", n, err)
	}
}

// TestFallback leaves out passes that make a module too expensive.
func TestFallback(t *testing.T) {
	loop := bytes.Repeat([]byte{opLoop, typeVoid, opLocalGet, 0, opBrIf, 0, opEnd}, 40)
	file := File(Types(Type(nil, nil)), Functions(0), Memory(1, 1), Exports(Export("f", 0, 0)), Code(BodyWith([]byte{I32}, loop...)))
	with, err := Module(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Module(file, Options{KeepDispatchLoops: true})
	if err != nil {
		t.Fatal(err)
	}
	if with.CompileCost <= plain.CompileCost {
		t.Fatalf("the passes make the module no more expensive: %d and %d units", with.CompileCost, plain.CompileCost)
	}
	got, err := Module(file, Options{MaxCompileCost: plain.CompileCost})
	if err != nil || !bytes.Equal(got.Code, plain.Code) {
		t.Errorf("the plain module is not what is left: %v", err)
	}
	if _, err := Module(file, Options{MaxCompileCost: plain.CompileCost - 1}); !errors.Is(err, errTooCostly) {
		t.Errorf("got %v", err)
	}
}
