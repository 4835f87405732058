package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// negatedComparison returns the comparison of integers that holds where op does not, or 0.
func negatedComparison(op byte) byte {
	switch op {
	case wasmbin.OpI32Eq, wasmbin.OpI64Eq: // ne
		return op + 1
	case wasmbin.OpI32Ne, wasmbin.OpI64Ne: // eq
		return op - 1
	case wasmbin.OpI32LtS, wasmbin.OpI32LtU, wasmbin.OpI64LtS, wasmbin.OpI64LtU: // ge
		return op + 6
	case wasmbin.OpI32GtS, wasmbin.OpI32GtU, wasmbin.OpI64GtS, wasmbin.OpI64GtU: // le
		return op + 2
	case wasmbin.OpI32LeS, wasmbin.OpI32LeU, wasmbin.OpI64LeS, wasmbin.OpI64LeU: // gt
		return op - 2
	case wasmbin.OpI32GeS, wasmbin.OpI32GeU, wasmbin.OpI64GeS, wasmbin.OpI64GeU: // lt
		return op - 6
	}
	return 0
}

const (
	// peepholeWindow is how many instructions are remembered at most, and peepholeKept how many of
	// them when it is full.
	peepholeWindow, peepholeKept = 64, 8
)

// peephole writes a body and looks back at the last instructions that it wrote (W. M. McKeeman,
// "Peephole optimization", Comm. ACM 8, 1965).
type peephole struct {
	out    []byte
	window []emittedInstruction // no branch target lies between two of them
}

type emittedInstruction struct {
	op byte
	at int
}

// combineInstructions returns the body with pairs of instructions replaced by shorter ones (package
// documentation, "peephole").
func (f *bodyOptimizer) combineInstructions(body []byte) []byte {
	f.begin(body)
	p := peephole{out: append(make([]byte, 0, len(body)+8), body[:f.Off]...)}
	for f.More() {
		i := f.next()
		p.write(i.Op, body[i.At:i.End])
	}
	if f.Err != nil {
		return body
	}
	return p.out
}

func (p *peephole) write(op byte, code []byte) {
	p.window = append(p.window, emittedInstruction{op, len(p.out)})
	p.out = append(p.out, code...)
	for len(p.window) >= 2 && p.combine(p.window[len(p.window)-2], p.window[len(p.window)-1]) {
	}
	if len(p.window) >= peepholeWindow {
		p.window = append(p.window[:0], p.window[len(p.window)-peepholeKept:]...)
	}
}

// combine replaces the last two instructions, and reports whether the result may combine with the
// instruction in front of it.
func (p *peephole) combine(a, b emittedInstruction) bool {
	switch {
	case a.op == opI64ExtendU && b.op == opI64Eqz:
		p.replace(opI32Eqz)
	case b.op == opI32Eqz && negatedComparison(a.op) != 0:
		p.replace(negatedComparison(a.op))
	case b.op == opI32Eqz && a.op == opI64Eqz:
		p.replacePair(emittedInstruction{opI64Const, a.at}, emittedInstruction{opI64Ne, a.at + 2}, opI64Const, 0, opI64Ne)
		return false
	case b.op == opI32Eqz && a.op == opI32Eqz:
		p.replacePair(emittedInstruction{opI32Const, a.at}, emittedInstruction{opI32Ne, a.at + 2}, opI32Const, 0, opI32Ne)
		return false
	case a.op == opI64ExtendU && b.op == opI32WrapI64:
		p.out, p.window = p.out[:a.at], p.window[:len(p.window)-2]
	case a.op == opI64Const && b.op == opI64And && p.constant(a) == 1<<32-1:
		p.replacePair(emittedInstruction{opI32WrapI64, a.at}, emittedInstruction{opI64ExtendU, a.at + 1}, opI32WrapI64, opI64ExtendU)
		p.combineLoad()
	case a.op == opI64Const && b.op == opI64Extend32S:
		p.replaceConstant(a, opI64Const)
	case a.op == opI64Const && b.op == opI32WrapI64:
		p.replaceConstant(a, opI32Const)
	default:
		return false
	}
	return true
}

// replace writes an instruction of one byte in place of the last two.
func (p *peephole) replace(op byte) {
	a := p.window[len(p.window)-2]
	p.out, p.window = append(p.out[:a.at], op), append(p.window[:len(p.window)-2], emittedInstruction{op, a.at})
}

func (p *peephole) replacePair(a, b emittedInstruction, code ...byte) {
	p.out, p.window = append(p.out[:a.at], code...), append(p.window[:len(p.window)-2], a, b)
}

// replaceConstant writes the low 32 bits of a constant, sign-extended, in place of the last two
// instructions.
func (p *peephole) replaceConstant(a emittedInstruction, op byte) {
	low := int64(int32(p.constant(a)))
	p.out = wasmbin.AppendSigned(append(p.out[:a.at], op), low)
	p.window = append(p.window[:len(p.window)-2], emittedInstruction{op, a.at})
}

// combineLoad replaces a zero-extended i64.load32 by a load that extends by itself.
func (p *peephole) combineLoad() {
	n := len(p.window)
	if n < 3 || p.window[n-3].op != opI64Load32U && p.window[n-3].op != wasmbin.OpI64Load32S {
		return
	}
	load := &p.window[n-3]
	p.out, p.window = p.out[:p.window[n-2].at], p.window[:n-2]
	load.op, p.out[load.at] = opI64Load32U, opI64Load32U
}

func (p *peephole) constant(w emittedInstruction) int64 {
	r := wasmbin.Reader{Data: p.out, Off: w.at + 1}
	return r.Signed(64)
}
