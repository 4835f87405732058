package optimize

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	. "github.com/outboard-run/outboard/internal/function/assemble"
)

// drawRounds draws the code of a loop with a variable for a sum and one that counts its
// rounds. There are two blocks around it.
func drawRounds(t *rapid.T) []byte {
	code := []byte{opLocalGet, 1, opI32Const, 1, 0x6a, opLocalTee, 1, opI32Const, 60, 0x4a, opBrIf, 1} // if rounds++ > 60 { break }
	for range rapid.IntRange(1, 4).Draw(t, "statements") {
		code = append(code, drawBranch(t, 0)...)
	}
	return append(code, opLocalGet, 0, opI32Const, byte(rapid.IntRange(0, 3).Draw(t, "end")), 0x71, opBrIf, 0)
}

// drawBranch draws a statement within so many blocks of a loop. Its labels are the
// blocks, the loop, and those around it.
func drawBranch(t *rapid.T, depth int) []byte {
	label := func() byte { return byte(rapid.IntRange(0, depth+2).Draw(t, "label")) }
	sum := []byte{opLocalGet, 0, opI32Const, 31, 0x6c, opI32Const, byte(rapid.IntRange(1, 60).Draw(t, "number")), 0x6a, opLocalSet, 0}
	bits := []byte{opLocalGet, 0, opI32Const, 3, 0x76, opI32Const, 3, 0x71} // sum >> 3 & 3
	inner := func(begin ...byte) []byte {
		if depth == 3 {
			return sum
		}
		return slices.Concat(begin, []byte{typeVoid}, drawBranch(t, depth+1), sum, []byte{opEnd})
	}
	switch rapid.IntRange(0, 5).Draw(t, "statement") {
	case 0:
		return slices.Concat(sum, bits, []byte{opBrIf, label()})
	case 1:
		return slices.Concat(sum, bits, []byte{opBrTable, 2, label(), label(), label()})
	case 2:
		return slices.Concat(bits, inner(opIf))
	case 3:
		return inner(opBlock)
	case 4:
		return slices.Concat(bits, []byte{opIf, typeVoid, 0x10, 1, opElse}, sum, []byte{opBr, label() + 1, opEnd})
	}
	return sum
}

// roundsFile is a module with a function f(sum i32) i32 that runs a loop, and one that
// the loop may call. Each way out of the loop leads past something else.
func roundsFile(loop []byte) []byte {
	times3 := []byte{opLocalGet, 0, opI32Const, 3, 0x6c, opLocalSet, 0}
	body := []byte{opBlock, typeVoid, opBlock, typeVoid, opLoop, typeVoid}
	body = slices.Concat(body, loop, []byte{opEnd}, times3, []byte{opEnd}, times3, []byte{opEnd, opLocalGet, 0})
	return File(
		Types(Type([]byte{I32}, []byte{I32}), Type(nil, nil)), Functions(0, 1), Memory(1, 1), Exports(Export("f", 0, 0)),
		Code(BodyWith([]byte{I32}, body...), Body(opNop)),
	)
}

// TestUnroll compares loops whose code is written several times with what they were.
func TestUnroll(t *testing.T) {
	e, grown := newEngines(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		loop := drawRounds(rt)
		file := roundsFile(loop)
		e.same(t, file)
		if n := bytes.Count(code(t, file, Options{Unmetered: true}), loop[:10]); n > 1 {
			grown++
		}
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
	if grown < 50 {
		t.Errorf("%d loops were written several times", grown)
	}
}

// TestUnrolledChecks wants one check for several rounds of a small loop, and leaves
// alone what is large or calls something.
func TestUnrolledChecks(t *testing.T) {
	next := []byte{opLocalGet, 0, opI32Const, 1, opI32Sub, opLocalTee, 0, opBrIf, 0}
	for name, test := range map[string]struct {
		loop []byte
		want int
	}{
		"small":           {next, maxCopies},
		"as large as can": {slices.Concat(bytes.Repeat([]byte{opNop}, maxUnrolled/2-len(next)), next), 2},
		"too large":       {slices.Concat(bytes.Repeat([]byte{opNop}, maxUnrolled/2-len(next)+1), next), 1},
		"with a call":     {slices.Concat([]byte{0x10, 1}, next), 1},
		"not repeated":    {next[:len(next)-2], 1},
	} {
		r, err := Module(roundsFile(test.loop), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(r.Code, next[:5]); got != test.want || r.Checks > 1 {
			t.Errorf("%s: written %d times with %d checks, want %d with one", name, got, r.Checks, test.want)
		}
	}
}
