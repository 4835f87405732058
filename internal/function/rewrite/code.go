package rewrite

import (
	"fmt"
	"slices"
)

const (
	// maxLocals is what browsers allow; a function's locals cost memory in the
	// compiler, and a few bytes can announce billions of them.
	maxLocals = 50_000
	// maxBody is what browsers allow for the code of one function.
	maxBody = 7_654_321
)

// coarseness is how many instructions that a loop or function may skip count as one.
// Counting them exactly would need a check behind every branch.
const coarseness = 32

// hostCost is charged for a call of what is imported.
const hostCost = 1024

// A check is a place in a function where its code gets a meter's check in front.
type check struct {
	at      int   // offset in the body
	bulk    bool  // what comes is an instruction whose last operand is a number of bytes
	certain int64 // instructions from here to the first branch
	all     int64 // instructions from here to the next checks, taken or not
	needed  bool
	outer   int // the check that the code around it belongs to
}

// cost is what passing a check is charged: what is certainly executed, or a share of
// what may be. So it is never less than a thirty-second part of what is.
func (c check) cost() int32 {
	return int32(min(max(c.certain, (c.all+coarseness-1)/coarseness, 1), maxBody))
}

// A block is one that is open.
type block struct {
	outer int // the check that the code around it belongs to
	loop  int // its check, or -1
}

// A toll is what a function that is entered without a check takes, outside of its
// loops: at most, and at least. It is charged to who calls it.
type toll struct{ all, certain int64 }

// Locals are where a body declares its local variables.
type locals struct {
	groups int    // of variables of one type
	at     int    // where the groups begin
	count  uint32 // variables
}

// A walker reads the body of one function.
type walker struct {
	reader
	m        *module
	free     []toll // of each function that is entered without a check
	checks   []check
	open     []block
	callees  []uint32
	now      int  // the check that the code here belongs to
	straight bool // no branch since the last check
	first    bool // the way from the entry leads straight to the first loop
	begin    int  // of the instruction that is read
	local    locals
	init     bool // memory.init was seen
}

// walk finds the places for checks in a body: its entry and its loops. Each
// instruction is charged to the innermost loop that it is in.
func (w *walker) walk(body []byte) error {
	w.reader = reader{b: body}
	w.checks, w.open, w.callees, w.now = w.checks[:0], w.open[:0], w.callees[:0], 0
	w.first = false
	if len(body) > maxBody {
		return fmt.Errorf("code of %d bytes: the limit is %d", len(body), maxBody)
	}
	w.locals()
	w.now = 0
	w.mark()
	w.checks[0].needed = true
	for done := false; !done && w.err == nil; {
		done = w.instruction()
	}
	if w.err == nil && w.left() > 0 {
		w.fail("%d bytes after the end", w.left())
	}
	w.settle()
	return w.err
}

// settle hands the costs of checks that are not needed on: a loop without branches to
// it is a part of what is around it, and if the way from the entry leads straight to
// a loop, the loop's check does for both.
func (w *walker) settle() {
	for i := len(w.checks) - 1; i > 0; i-- {
		if c := w.checks[i]; !c.needed {
			w.checks[c.outer].all += c.all
		}
	}
	if w.first && w.checks[1].needed && !w.checks[1].bulk {
		w.checks[0].needed = false
		w.checks[1].all += w.checks[0].all
	}
}

// needed says whether any check is needed.
func (w *walker) needed() bool {
	return slices.ContainsFunc(w.checks, func(c check) bool { return c.needed })
}

// mark begins the code that belongs to a check here.
func (w *walker) mark() {
	w.first = w.first || len(w.checks) == 1 && w.checks[0].all == 0
	w.checks = append(w.checks, check{at: w.off, outer: w.now})
	w.now = len(w.checks) - 1
	w.straight = true
}

// charge counts instructions.
func (w *walker) charge(n int64) {
	c := &w.checks[w.now]
	c.all += n
	if w.straight {
		c.certain += n
	}
}

// target notes a branch to an open block. A loop that no branch goes to needs no check.
func (w *walker) target(label uint32) {
	w.straight = false
	if n := len(w.open); int64(label) < int64(n) {
		if loop := w.open[n-1-int(label)].loop; loop >= 0 {
			w.checks[loop].needed = true
		}
	}
}

func (w *walker) locals() {
	var total uint64
	w.local.groups = w.count(2)
	w.local.at = w.off
	for range w.local.groups {
		total += uint64(w.u32())
		w.valueType()
	}
	if total > maxLocals {
		w.fail("%d local variables: the limit is %d", total, maxLocals)
	}
	w.local.count = uint32(total)
}

// instruction reads one instruction and says whether it ended the body.
func (w *walker) instruction() (done bool) {
	w.begin = w.off
	op := w.byte()
	switch kind := operandOf(op); kind {
	case blockStart, catches:
		w.open = append(w.open, block{w.now, -1})
		w.block(kind)
		w.branchIf(op == 0x04)
	case loopStart:
		w.block(kind)
		outer := w.now
		w.mark()
		w.open = append(w.open, block{outer, w.now})
	case endMark:
		return w.end()
	case elseMark:
	case prefixMisc, prefixVector, prefixAtomic:
		w.charge(1)
		w.prefixed(op, kind)
	default:
		w.charge(1)
		w.operand(kind, uint32(op))
	}
	return false
}

func (w *walker) branchIf(yes bool) {
	if yes {
		w.charge(1)
		w.straight = false
	}
}

// end closes a block. What follows may be reached by other ways.
func (w *walker) end() (done bool) {
	n := len(w.open) - 1
	if n < 0 {
		return true
	}
	w.now = w.open[n].outer
	w.straight = false
	w.open = w.open[:n]
	return false
}

func (w *walker) prefixed(prefix byte, page operand) {
	at := w.off - 1
	op := w.u32()
	var kind operand
	switch page {
	case prefixMisc:
		kind = miscOperand(op)
		w.init = w.init || op == 8
		if op == 8 || op == 10 || op == 11 { // memory.init, memory.copy, memory.fill
			w.bulk(at)
		}
	case prefixVector:
		kind = vectorOperand(op)
	default:
		kind = atomicOperand(op)
	}
	if op > 0xff {
		w.fail("opcode 0x%x%02x is of no feature that is known here", prefix, op)
		return
	}
	w.operand(kind, uint32(prefix)<<8|op)
}

// bulk notes an instruction that takes as long as its operand says.
func (w *walker) bulk(at int) {
	w.checks = append(w.checks, check{at: at, bulk: true, needed: true, outer: w.now})
}

func (w *walker) operand(kind operand, op uint32) {
	switch kind {
	case none:
		w.straight = w.straight && op != 0x00 && op != 0x0f
	case label:
		w.target(w.u32())
	case index:
		w.u32()
	case callRef:
		w.u32()
		w.unknownCall()
	case twoIndexes:
		w.u32()
		w.u32()
		w.unknownCall()
	case call:
		w.call(w.index("function", w.m.functions))
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
		for range w.count(1) + 1 {
			w.target(w.u32())
		}
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

// call notes a call. One of a function without checks is charged here.
func (w *walker) call(f uint32) {
	if w.err != nil {
		return
	}
	w.callees = append(w.callees, f)
	if int(f) < w.m.imported {
		w.charge(hostCost)
		return
	}
	c := &w.checks[w.now]
	c.all += w.free[f].all
	if w.straight {
		c.certain += w.free[f].certain
	}
}

// unknownCall puts a check in front of a call of what is not known: it may be the
// function that calls, or one that is entered without a check. A check costs little
// there, since no register outlives the call.
func (w *walker) unknownCall() {
	w.checks = append(w.checks, check{at: w.begin, all: maxFree, needed: true, outer: w.now})
}

func (w *walker) block(kind operand) {
	switch w.signed(33) { // none, a value type below zero, or an index of a type
	case typeRef - 0x80, typeRefNull - 0x80:
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
		w.target(w.u32() + 1) // counted from outside of the block
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
