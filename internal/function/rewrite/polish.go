package rewrite

// Compilers leave pairs of instructions that are one, or none: Go's makes most of its
// conditions by negating a comparison, often more than once. The engine does not join
// them, and then compares twice. polish does.

const (
	opI32Eqz, opI64Eqz        = 0x45, 0x50
	opI64And, opI64Load32U    = 0x83, 0x35
	opI32Ne, opI64Ne          = 0x47, 0x52
	opI32Wrap                 = 0xa7
	opI64ExtendU, opI64Sext32 = 0xad, 0xc4
)

// opposite returns the comparison of integers that holds where op does not, or 0.
func opposite(op byte) byte {
	switch op {
	case 0x46, 0x51: // eq, ne
		return op + 1
	case 0x47, 0x52:
		return op - 1
	case 0x48, 0x49, 0x53, 0x54: // lt_s, lt_u: ge_s, ge_u
		return op + 6
	case 0x4a, 0x4b, 0x55, 0x56: // gt_s, gt_u: le_s, le_u
		return op + 2
	case 0x4c, 0x4d, 0x57, 0x58:
		return op - 2
	case 0x4e, 0x4f, 0x59, 0x5a:
		return op - 6
	}
	return 0
}

// A polisher writes a body, and looks back at what it wrote last.
type polisher struct {
	out  []byte
	last []written // the last instructions, of which nothing jumps between two
}

type written struct {
	op byte
	at int
}

// polish returns the body with fewer instructions that do the same.
func (f *finder) polish(body []byte) []byte {
	f.begin(body)
	p := polisher{out: append(make([]byte, 0, len(body)+8), body[:f.off]...)}
	for f.more() {
		i := f.next()
		p.write(i.op, body[i.at:i.end])
	}
	if f.err != nil {
		return body
	}
	return p.out
}

func (p *polisher) write(op byte, code []byte) {
	p.last = append(p.last, written{op, len(p.out)})
	p.out = append(p.out, code...)
	for len(p.last) >= 2 && p.join(p.last[len(p.last)-2], p.last[len(p.last)-1]) {
	}
	if len(p.last) >= 64 {
		p.last = append(p.last[:0], p.last[len(p.last)-8:]...)
	}
}

// join makes less of the last two instructions, and says whether there may be more to
// join.
func (p *polisher) join(a, b written) bool {
	switch {
	case a.op == opI64ExtendU && b.op == opI64Eqz:
		p.replace(opI32Eqz)
	case b.op == opI32Eqz && opposite(a.op) != 0:
		p.replace(opposite(a.op))
	case b.op == opI32Eqz && a.op == opI64Eqz:
		p.replaceBy(written{opI64Const, a.at}, written{opI64Ne, a.at + 2}, opI64Const, 0, opI64Ne)
		return false
	case b.op == opI32Eqz && a.op == opI32Eqz:
		p.replaceBy(written{opI32Const, a.at}, written{opI32Ne, a.at + 2}, opI32Const, 0, opI32Ne)
		return false
	case a.op == opI64ExtendU && b.op == opI32Wrap:
		p.out, p.last = p.out[:a.at], p.last[:len(p.last)-2]
	case a.op == opI64Const && b.op == opI64And && p.constant(a) == 1<<32-1:
		p.replaceBy(written{opI32Wrap, a.at}, written{opI64ExtendU, a.at + 1}, opI32Wrap, opI64ExtendU)
		p.narrow()
	case a.op == opI64Const && b.op == opI64Sext32:
		c := p.constant(a)
		p.out, p.last = appendI64(append(p.out[:a.at], opI64Const), int64(int32(c))), p.last[:len(p.last)-1]
	case a.op == opI64Const && b.op == opI32Wrap:
		c := p.constant(a)
		p.out, p.last = appendI32(append(p.out[:a.at], opI32Const), int32(c)), p.last[:len(p.last)-1]
		p.last[len(p.last)-1].op = opI32Const
	default:
		return false
	}
	return true
}

// replace puts an instruction of one byte in the place of the last two.
func (p *polisher) replace(op byte) {
	a := p.last[len(p.last)-2]
	p.out, p.last = append(p.out[:a.at], op), append(p.last[:len(p.last)-2], written{op, a.at})
}

func (p *polisher) replaceBy(a, b written, code ...byte) {
	p.out, p.last = append(p.out[:a.at], code...), append(p.last[:len(p.last)-2], a, b)
}

// narrow joins a load with what makes 32 bits without a sign of it.
func (p *polisher) narrow() {
	n := len(p.last)
	if n < 3 || p.last[n-3].op != opI64Load32U && p.last[n-3].op != opI64Load32U-1 {
		return
	}
	load := &p.last[n-3]
	p.out, p.last = p.out[:p.last[n-2].at], p.last[:n-2]
	load.op, p.out[load.at] = opI64Load32U, opI64Load32U
}

func (p *polisher) constant(w written) int64 {
	r := reader{b: p.out, off: w.at + 1}
	return r.signed(64)
}

func appendI64(b []byte, v int64) []byte {
	for v < -64 || v > 63 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}
