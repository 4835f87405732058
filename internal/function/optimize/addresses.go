package optimize

import (
	"slices"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

const (
	// maxOffset bounds the offsets that are folded into accesses by a pointer: it is below the
	// least address that Go uses (runtime, mem_wasm.go: the first 4 KiB are unused).
	maxOffset = 4096
	// maxFrame bounds the offsets that are folded into accesses by the stack pointer.
	maxFrame = 1 << 20
	// returnSize is the size of a return address.
	returnSize = 8
	// stackGlobal and stackLocal hold Go's stack pointer (cmd/internal/obj/wasm, REG_SP): the
	// global between functions, the local within one.
	stackGlobal, stackLocal = 0, 1
	// maxStackValues bounds how many values of the operand stack are tracked: the topmost.
	maxStackValues = 256
	// maxNarrowed bounds how many narrowed pointers are tracked at a time.
	maxNarrowed = 256
)

const (
	firstNumeric, lastNumeric = wasmbin.OpI32Eqz, wasmbin.OpI64Extend32S
	lastLoad                  = wasmbin.OpI64Load32U
)

// stackValue is a symbolic value on the operand stack.
type stackValue struct {
	kind        valueKind
	wide        bool // 64 bits
	local       uint32
	offset      int64
	first, last int              // the instructions that compute it
	defined     bool             // the first instruction is a local.tee and has to stay
	narrowed    *narrowedPointer // the local that holds it as 32 bits
}

type valueKind uint8

const (
	unknownValue valueKind = iota
	localPlusOffset
	constantValue
)

// addressFolder rewrites the addresses of one body. It interprets the body symbolically and folds
// additions of constants into the offsets of loads and stores.
type addressFolder struct {
	code       bodyCode
	frame      stackFrame
	stack      []stackValue
	narrowed   map[uint32]*narrowedPointer // by the local of the pointer
	depth      int
	block      int    // the number of the basic block
	nextLocal  uint32 // the next free local
	firstLocal uint32 // of the new locals
	onStack    bool   // addresses relative to the stack pointer are folded, or else all others
}

// foldFrameAddresses returns the body with folded addresses on Go's stack, if it is a function of
// Go's with a stack pointer.
func (f *bodyOptimizer) foldFrameAddresses(body []byte, params uint32) []byte {
	a, start := f.newAddressFolder(body, params)
	if a == nil || !a.beginFrame(params) {
		return body
	}
	a.onStack = true
	a.run()
	return a.emit(f, body, start)
}

// beginFrame rebases the stack pointer. It reports false for a body that is not understood as a
// function of Go's with a stack pointer.
func (a *addressFolder) beginFrame(params uint32) bool {
	if !a.code.isGoFunction(params) {
		return false
	}
	frameless, understood := a.code.rebaseStackPointer()
	a.frame.allocated, a.frame.live = frameless, frameless
	return understood
}

// foldPointerAddresses returns the body with folded addresses elsewhere.
func (f *bodyOptimizer) foldPointerAddresses(body []byte, params uint32) []byte {
	a, start := f.newAddressFolder(body, params)
	if a == nil {
		return body
	}
	a.run()
	return a.emit(f, body, start)
}

// newAddressFolder decodes a body, whose first instruction is at start. The instructions are valid
// until the next call.
func (f *bodyOptimizer) newAddressFolder(body []byte, params uint32) (a *addressFolder, start int) {
	f.begin(body)
	first := params + uint32(f.locals.Count)
	a = &addressFolder{code: bodyCode{f.instructions[:0], f.budget}, narrowed: map[uint32]*narrowedPointer{}, nextLocal: first, firstLocal: first}
	start = f.Off
	for f.More() {
		i := f.next()
		a.code.instructions = append(a.code.instructions, instruction{Instruction: i, operand: f.constantOperand(i)})
	}
	f.instructions = a.code.instructions
	if f.Err != nil || f.locals.Count >= maxLocals/2 {
		return nil, 0
	}
	return a, start
}

// constantOperand returns the operand from which addresses are computed: a number, the index of a
// local, or the offset of an access.
func (f *bodyOptimizer) constantOperand(i wasmbin.Instruction) int64 {
	r := wasmbin.Reader{Data: f.Data, Off: i.At + 1}
	switch {
	case isLocal(i.Op), i.Op == opGlobalGet, i.Op == opGlobalSet, i.Op == opBr, i.Op == opBrIf:
		return int64(r.U32())
	case i.Op == opI32Const:
		return r.Signed(32)
	case i.Op == opI64Const:
		return r.Signed(64)
	case i.Op >= opI32Load && i.Op <= opI64Store32:
		r.U32()
		return int64(r.U32())
	}
	return 0
}

// run interprets all instructions.
func (a *addressFolder) run() {
	for i := range a.code.instructions {
		l := &a.code.instructions[i]
		if l.deleted || l.code != nil {
			a.skipRewritten(i)
			continue
		}
		a.interpret(i, l)
	}
	for len(a.stack) > 0 {
		a.materialize(a.pop())
	}
	for _, k := range a.narrowed {
		a.hoistCheck(k)
	}
	a.frame.insertProbes(&a.code)
}

// skipRewritten passes over instructions that rebaseStackPointer wrote.
func (a *addressFolder) skipRewritten(i int) {
	l := a.code.instructions[i]
	switch {
	case l.deleted:
	case l.Op == opEnd:
		a.closeBlock()
	case l.Op == opLocalGet && len(l.code) == 2: // the address of the return address
		a.push(stackValue{kind: localPlusOffset, local: stackLocal, first: i, last: i, offset: -returnSize})
	case l.frameSize > 0:
		a.frame.allocated, a.frame.live = true, true
		a.invalidate(stackLocal)
		a.block++
	default:
		a.frame.live = a.frame.live && l.frameSize == 0
		a.invalidate(stackLocal)
		a.block++
	}
}

// push adds a value to the stack. Beyond maxStackValues it materialises the lowest tracked value.
func (a *addressFolder) push(v stackValue) {
	if len(a.stack) == maxStackValues {
		a.materialize(a.stack[0])
		a.stack = append(a.stack[:0], a.stack[1:]...)
		a.code.budget.spend(maxStackValues / 8)
	}
	a.stack = append(a.stack, v)
}

func (a *addressFolder) pop() stackValue {
	if n := len(a.stack); n > 0 {
		v := a.stack[n-1]
		a.stack = a.stack[:n-1]
		return v
	}
	return stackValue{}
}

// materialize makes sure that a value is computed in full: it is used for more than an address.
func (a *addressFolder) materialize(v stackValue) {
	if v.kind != localPlusOffset {
		return
	}
	if !a.onStack {
		if v.narrowed != nil && v.offset > 0 {
			l := &a.code.instructions[v.last]
			l.after = append(wasmbin.AppendSigned(append(l.after, opI32Const), v.offset), opI32Add)
		}
		return
	}
	code := wasmbin.AppendSigned([]byte{opLocalGet, stackLocal, opI32Const}, v.offset+returnSize)
	code = append(code, opI32Add)
	if v.wide {
		code = append(code, opI64ExtendU)
	}
	a.code.delete(v.first, v.last+1)
	a.code.replace(v.first, code...)
}

// interpret executes one instruction symbolically.
func (a *addressFolder) interpret(i int, l *instruction) {
	switch op := l.Op; {
	case op == opLocalGet && a.onStack && l.operand != stackLocal:
		a.push(stackValue{})
	case op == opLocalGet:
		a.push(stackValue{kind: localPlusOffset, local: uint32(l.operand), wide: !a.onStack, first: i, last: i})
	case op == opI32Const || op == opI64Const:
		a.push(stackValue{kind: constantValue, wide: op == opI64Const, offset: l.operand, first: i, last: i})
	case op == opI32Add || op == opI64Add:
		a.foldAdd(i, op == opI64Add)
	case op == opI64ExtendU || op == opI32WrapI64:
		a.foldConversion(i, op == opI64ExtendU)
	case op >= opI32Load && op <= lastLoad:
		a.foldAccess(i, a.pop())
		a.push(stackValue{})
	case op >= opI32Store && op <= opI64Store32:
		a.materialize(a.pop())
		a.foldAccess(i, a.pop())
	default:
		a.interpretOther(i, l)
	}
}

func (a *addressFolder) interpretOther(i int, l *instruction) {
	switch op := l.Op; {
	case op == opLocalSet, op == opLocalTee:
		a.materialize(a.pop())
		a.invalidate(uint32(l.operand))
		switch {
		case op == opLocalTee && a.onStack:
			a.push(stackValue{})
		case op == opLocalTee:
			a.push(stackValue{kind: localPlusOffset, local: uint32(l.operand), wide: true, first: i, last: i, defined: true})
		}
	case op == opGlobalGet, op == opF32Const, op == opF64Const, op == opMemorySize:
		a.push(stackValue{})
	case op == opGlobalSet, op == opDrop:
		a.materialize(a.pop())
	case op == opSelect:
		a.replaceOperands(3)
	case op >= firstNumeric && op <= lastNumeric:
		a.replaceOperands(operandCount(op))
	default:
		a.endBlock(l.Op)
	}
}

// replaceOperands pops operands and pushes an unknown result.
func (a *addressFolder) replaceOperands(n int) {
	for range n {
		a.materialize(a.pop())
	}
	a.push(stackValue{})
}

// operandCount returns how many operands a numeric instruction has.
func operandCount(op byte) int {
	switch {
	case op == opI32Eqz, op == opI64Eqz, op >= 0x67 && op <= 0x69, op >= 0x79 && op <= 0x7b,
		op >= 0x8b && op <= 0x91, op >= 0x99 && op <= 0x9f, op >= opI32WrapI64:
		return 1
	}
	return 2
}

// endBlock ends a basic block, and with it all that is known of the stack.
func (a *addressFolder) endBlock(op byte) {
	for len(a.stack) > 0 {
		a.materialize(a.pop())
	}
	switch op {
	case opBlock, opIf, opTryTable:
		a.depth++
	case opLoop:
		a.depth++
		a.invalidateFrom(0)
	case opEnd:
		a.closeBlock()
		return
	case opElse:
		a.invalidateFrom(a.depth)
	}
	a.block++
}

func (a *addressFolder) closeBlock() {
	for len(a.stack) > 0 {
		a.materialize(a.pop())
	}
	a.invalidateFrom(a.depth)
	a.depth--
	a.block++
	a.frame.live = a.frame.allocated
}

// invalidateFrom forgets pointers that were narrowed in blocks of at least the depth: their
// narrowing dominates nothing that follows.
func (a *addressFolder) invalidateFrom(depth int) {
	a.code.budget.spend(len(a.narrowed))
	for local, k := range a.narrowed {
		if k.depth >= depth {
			a.hoistCheck(k)
			delete(a.narrowed, local)
		}
	}
}

// invalidate drops all knowledge of a local that is assigned.
func (a *addressFolder) invalidate(local uint32) {
	if k := a.narrowed[local]; k != nil {
		a.hoistCheck(k)
		delete(a.narrowed, local)
	}
	a.code.budget.spend(len(a.stack))
	for n := range a.stack { // values from before the assignment
		if v := &a.stack[n]; v.kind == localPlusOffset && v.local == local {
			a.materialize(*v)
			*v = stackValue{}
		}
	}
}

// foldAdd interprets an addition.
func (a *addressFolder) foldAdd(i int, wide bool) {
	y, x := a.pop(), a.pop()
	sum := x.offset + y.offset
	if x.kind == localPlusOffset && y.kind == constantValue && x.last+1 == y.first && y.last+1 == i && x.wide == wide && a.offsetFits(sum) && y.offset >= 0 {
		x.offset, x.last = sum, i
		a.push(x)
		return
	}
	a.materialize(y)
	a.materialize(x)
	a.push(stackValue{})
}

func (a *addressFolder) offsetFits(offset int64) bool {
	if a.onStack {
		return offset >= 0 && offset < maxFrame
	}
	return offset >= 0 && offset < maxOffset
}

// foldConversion interprets a conversion between 32 and 64 bits.
func (a *addressFolder) foldConversion(i int, wide bool) {
	v := a.pop()
	if v.kind != localPlusOffset || v.last+1 != i || v.wide == wide || (wide && !a.onStack) {
		a.materialize(v)
		a.push(stackValue{})
		return
	}
	v.wide, v.last = wide, i
	if !a.onStack {
		a.narrowPointer(&v)
	}
	a.push(v)
}

// foldAccess interprets a load or a store at an address.
func (a *addressFolder) foldAccess(i int, v stackValue) {
	l := &a.code.instructions[i]
	if v.kind != localPlusOffset || v.wide {
		a.materialize(v)
		return
	}
	offset := l.operand + v.offset
	extent := offset + accessSize(l.Op)
	switch {
	case a.onStack:
		offset += returnSize
		a.code.delete(v.first, v.last+1)
		a.code.replace(v.first, opLocalGet, stackLocal)
		a.frame.noteAccess(a.block, v.first, extent+returnSize)
	case v.narrowed != nil:
		a.noteAccess(v.narrowed, v.last, extent)
	default:
		return // an address that was 32 bits wide from the beginning
	}
	if offset != l.operand {
		l.code = withOffset(l, offset)
	}
}

// withOffset returns an access with another offset, and without an alignment hint that may not
// hold.
func withOffset(l *instruction, offset int64) []byte {
	return wasmbin.AppendU32([]byte{l.Op, 0}, uint32(offset))
}

// accessSize returns how many bytes a load or store moves.
func accessSize(op byte) int64 {
	switch op {
	case 0x2c, 0x2d, 0x30, 0x31, 0x3a, 0x3c:
		return 1
	case 0x2e, 0x2f, 0x32, 0x33, 0x3b, 0x3d:
		return 2
	case 0x29, 0x2b, 0x37, 0x39:
		return 8
	}
	return 4
}

// emit writes the body, with new locals behind its own.
func (a *addressFolder) emit(f *bodyOptimizer, body []byte, start int) []byte {
	if !f.spend(len(body)) {
		return body
	}
	out := make([]byte, 0, len(body)+len(body)/8)
	if a.nextLocal == a.firstLocal {
		out = append(out, body[:start]...)
	} else {
		out = wasmbin.AppendU32(out, uint32(f.locals.Groups+1))
		out = append(out, body[f.locals.At:start]...)
		out = append(wasmbin.AppendU32(out, a.nextLocal-a.firstLocal), wasmbin.TypeI32)
	}
	for _, l := range a.code.instructions {
		out = append(out, l.before...)
		switch {
		case l.code != nil:
			out = append(out, l.code...)
		case !l.deleted:
			out = append(out, body[l.At:l.End]...)
		}
		out = append(out, l.after...)
	}
	return slices.Clip(out)
}
