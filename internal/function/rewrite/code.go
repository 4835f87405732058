package rewrite

import "fmt"

const (
	// maxLocals is what browsers allow; a function's locals cost memory in the
	// compiler, and a few bytes can announce billions of them.
	maxLocals = 50_000
	// maxBody is what browsers allow for the code of one function.
	maxBody = 7_654_321
)

// A check is a place in a function where its code gets a meter's check in front.
type check struct {
	at   int   // offset in the body
	cost int32 // instructions from here to the next checks, taken or not
}

// A walker reads the body of one function.
type walker struct {
	reader
	m      *module
	checks []check
	open   []int // the check that the code after each open block belongs to
	now    int   // the check that the code here belongs to
	init   bool  // memory.init was seen
}

// walk finds the places for checks in a body: its entry and its loops. Each
// instruction is charged to the innermost loop that it is in.
func (w *walker) walk(body []byte) error {
	w.reader = reader{b: body}
	w.checks, w.open, w.now = w.checks[:0], w.open[:0], 0
	if len(body) > maxBody {
		return fmt.Errorf("code of %d bytes: the limit is %d", len(body), maxBody)
	}
	w.locals()
	w.checks = append(w.checks, check{at: w.off})
	for done := false; !done && w.err == nil; {
		done = w.instruction()
	}
	if w.err == nil && w.left() > 0 {
		w.fail("%d bytes after the end", w.left())
	}
	return w.err
}

func (w *walker) locals() {
	var total uint64
	for range w.count(2) {
		total += uint64(w.u32())
		w.valueType()
	}
	if total > maxLocals {
		w.fail("%d local variables: the limit is %d", total, maxLocals)
	}
}

// instruction reads one instruction and says whether it ended the body.
func (w *walker) instruction() (done bool) {
	w.checks[w.now].cost++
	op := w.byte()
	switch kind := operandOf(op); kind {
	case none, elseMark:
	case blockStart, catches:
		w.open = append(w.open, w.now)
		w.block(kind)
	case loopStart:
		w.open = append(w.open, w.now)
		w.block(kind)
		w.now = len(w.checks)
		w.checks = append(w.checks, check{at: w.off})
	case endMark:
		if len(w.open) == 0 {
			return true
		}
		w.now = w.open[len(w.open)-1]
		w.open = w.open[:len(w.open)-1]
	case prefixMisc, prefixVector, prefixAtomic:
		w.prefixed(op, kind)
	default:
		w.operand(kind, uint32(op))
	}
	return false
}

func (w *walker) prefixed(prefix byte, page operand) {
	op := w.u32()
	kind := unknown
	switch page {
	case prefixMisc:
		kind = miscOperand(op)
		w.init = w.init || op == 8
	case prefixVector:
		kind = vectorOperand(op)
	case prefixAtomic:
		kind = atomicOperand(op)
	}
	if op > 0xff {
		w.fail("opcode 0x%x %d is of no feature that is known here", prefix, op)
		return
	}
	w.operand(kind, uint32(prefix)<<8|op)
}

func (w *walker) operand(kind operand, op uint32) {
	switch kind {
	case none:
	case index:
		w.u32()
	case twoIndexes:
		w.u32()
		w.u32()
	case function:
		w.index("function", w.m.functions)
	case global:
		w.index("global", w.m.globals)
	case number32:
		w.signed(32)
	case number64:
		w.signed(64)
	case fourBytes:
		w.bytes(4)
	case eightBytes:
		w.bytes(8)
	case sixteenBytes:
		w.bytes(16)
	case lane:
		w.byte()
	default:
		w.rareOperand(kind, op)
	}
}

func (w *walker) rareOperand(kind operand, op uint32) {
	switch kind {
	case memArg:
		w.memArg()
	case memArgLane:
		w.memArg()
		w.byte()
	case zero:
		w.zero()
	case twoZeros:
		w.zero()
		w.zero()
	case dataAndZero:
		w.u32()
		w.zero()
	case labels:
		for range w.count(1) {
			w.u32()
		}
		w.u32()
	case types:
		for range w.count(1) {
			w.valueType()
		}
	case heapType:
		w.signed(33)
	case refused:
		w.fail("%s", why[op])
	default:
		w.fail("opcode 0x%02x is of no feature that is known here", op)
	}
}

func (w *walker) block(kind operand) {
	switch t := w.signed(33); { // none, a value type below zero, or an index of a type
	case t == typeRef-0x80, t == typeRefNull-0x80:
		w.signed(33)
	}
	if kind == catches {
		w.clauses()
	}
}

func (w *walker) clauses() {
	for range w.count(2) {
		switch kind := w.byte(); kind {
		case 0, 1: // catch, catch_ref
			w.u32()
		case 2, 3: // catch_all, catch_all_ref
		default:
			w.fail("catch clause of kind %d", kind)
		}
		w.u32()
	}
}

func (w *walker) memArg() {
	if align := w.u32(); align >= 64 {
		w.fail("several memories: a function has one")
	}
	w.u32()
}

func (w *walker) zero() {
	if w.byte() != 0 {
		w.fail("several memories: a function has one")
	}
}

// valueType reads a value type and returns its first byte.
func (r *reader) valueType() byte {
	t := r.byte()
	switch t {
	case typeI32, typeI64, typeF32, typeF64, typeV128, typeFunc, typeExtern, typeExn:
	case typeRefNull, typeRef:
		r.signed(33)
	default:
		r.fail("value type 0x%02x is of no feature that is known here", t)
	}
	return t
}
