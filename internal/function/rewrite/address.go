package rewrite

import "slices"

// The engine looks at the bounds of each access to memory, unless it has looked at the
// same variable before, on the way there, with an offset that is not smaller. Such a
// look costs more than the access, and Go's code gives it no chance: it computes most
// addresses anew, as a pointer of 64 bits, an offset added to it, and all of it made 32
// bits; and its stack pointer is another one within each call.
//
// addresses rewrites what Go made. An offset that is added to the stack pointer or to a
// pointer becomes the offset of the access. A pointer that is used more than once is
// made 32 bits once. The variable of the stack pointer holds 8 less than it did, so
// that the return address, too, is at an offset from it. Where accesses follow each
// other without a branch, the farthest one is tried first. And the stack pointer is
// read again at the beginning of the code after a call, for those who return there and
// for those who enter the function there alike.
//
// This changes what a program does whose sums of pointers and offsets go beyond 32
// bits: there it traps. Go's have no such sums: no offset here is larger than the
// addresses that it leaves free at the beginning, or the frame that the stack pointer
// points to.

const (
	// maxOffset is what may be added to a pointer: less than the least address that Go
	// uses.
	maxOffset = 4096
	// maxFrame is what may be added to the stack pointer.
	maxFrame = 1 << 20
	// returnSize is the size of a return address.
	returnSize = 8
	// stackGlobal and stackLocal are where Go has its stack pointer.
	stackGlobal, stackLocal = 0, 1
)

const (
	opTryTable                      = 0x1f
	opNop                           = 0x01
	opCall, opCallIndirect          = 0x10, 0x11
	opElse, opDrop, opSelect        = 0x05, 0x1a, 0x1b
	opGlobalGet, opGlobalSet        = 0x23, 0x24
	opI32Add, opI64Add              = 0x6a, 0x7c
	opI32Load, opI64Store32         = 0x28, 0x3e
	opI32Store                      = 0x36
	opI32Load8U                     = 0x2d
	opF32Const, opF64Const          = 0x43, 0x44
	opMemorySize, opMemoryGrow      = 0x3f, 0x40
	firstNumeric, lastNumeric       = 0x45, 0xc4
	lastLoad                        = 0x35
	bulkPrefix                 byte = 0xfc
)

// A line is an instruction of a body, and what becomes of it.
type line struct {
	instruction
	number int64  // its number: of a constant, of a variable, the offset of an access
	before []byte // code that goes in front of it
	code   []byte // what it becomes, if changed
	after  []byte // code that goes behind it
	gone   bool
	frame  int64 // what it adds to the frame on the stack
}

// A term is a value on the stack: a variable plus an offset, a number, or anything.
type term struct {
	kind   termKind
	wide   bool // 64 bits
	local  uint32
	offset int64
	from   int     // its first line
	to     int     // its last line
	set    bool    // the variable is set by the first line, which has to stay
	narrow *cached // what holds the pointer as 32 bits
}

type termKind uint8

const (
	anything termKind = iota
	pointer           // local + offset
	constant
)

// An addresser rewrites the addresses of a body.
type addresser struct {
	lines   []line
	stack   []term
	known   map[uint32]*cached // by the variable
	depth   int
	group   int    // counts runs without branches
	spare   uint32 // the next free variable
	first   uint32 // of the new variables
	onStack bool   // only addresses on the stack are rewritten, or else only others
	framed  bool   // the function made room for its variables on the stack, if it does
	inFrame bool   // and did not give it up
	frame   int64  // how far accesses to the stack go
	tries   []int  // the lines in front of which all of the stack that is used is tried
	stacked int    // the last run without branches that used the stack
}

// frames returns the body of a function with other addresses on the stack, if it is
// one of Go's that has one.
func (f *finder) frames(body []byte, params uint32) []byte {
	a, start := f.addresser(body, params)
	if a == nil || !a.hasStack(params) || !a.shiftStack() {
		return body
	}
	a.onStack = true
	a.run()
	return a.emit(f, body, start)
}

// pointers returns the body of a function with other addresses elsewhere.
func (f *finder) pointers(body []byte, params uint32) []byte {
	a, start := f.addresser(body, params)
	if a == nil {
		return body
	}
	a.run()
	return a.emit(f, body, start)
}

// addresser reads a body. Its first line is at start. Its lines are valid until the next
// one.
func (f *finder) addresser(body []byte, params uint32) (a *addresser, start int) {
	f.begin(body)
	first := params + f.local.count
	a = &addresser{lines: f.lines[:0], known: map[uint32]*cached{}, spare: first, first: first}
	start = f.off
	for f.more() {
		i := f.next()
		a.lines = append(a.lines, line{instruction: i, number: f.numberAt(i)})
	}
	f.lines = a.lines
	if f.err != nil || f.local.count >= maxLocals/2 {
		return nil, 0
	}
	return a, start
}

// numberAt is the operand that addresses are made of.
func (f *finder) numberAt(i instruction) int64 {
	r := reader{b: f.b, off: i.at + 1}
	switch {
	case isLocal(i.op), i.op == opGlobalGet, i.op == opGlobalSet, i.op == opBr, i.op == opBrIf:
		return int64(r.u32())
	case i.op == opI32Const:
		return r.signed(32)
	case i.op == opI64Const:
		return r.signed(64)
	case i.op >= opI32Load && i.op <= opI64Store32:
		r.u32()
		return int64(r.u32())
	}
	return 0
}

// is says whether the lines from one on are certain instructions.
func (a *addresser) is(at int, ops ...byte) bool {
	if at+len(ops) > len(a.lines) {
		return false
	}
	for i, op := range ops {
		if a.lines[at+i].op != op {
			return false
		}
	}
	return true
}

// run goes through the lines with a stack of terms.
func (a *addresser) run() {
	for i := range a.lines {
		l := &a.lines[i]
		if l.gone || l.code != nil {
			a.special(i)
			continue
		}
		a.step(i, l)
	}
	for len(a.stack) > 0 {
		a.keep(a.pop())
	}
	for _, k := range a.known {
		a.try(k)
	}
	for _, at := range a.tries {
		a.lines[at].before = append(a.lines[at].before, attempt(stackLocal, a.frame)...)
	}
}

// special passes over lines that shiftStack wrote.
func (a *addresser) special(i int) {
	l := a.lines[i]
	switch {
	case l.gone:
	case l.op == opEnd:
		a.closeBlock()
	case l.op == opGet && len(l.code) == 2: // the place of the return address
		a.push(term{kind: pointer, local: stackLocal, from: i, to: i, offset: -returnSize})
	case l.frame > 0:
		a.framed, a.inFrame = true, true
		a.forget(stackLocal)
		a.group++
	default:
		a.inFrame = a.inFrame && l.frame == 0
		a.forget(stackLocal)
		a.group++
	}
}

func (a *addresser) push(t term) { a.stack = append(a.stack, t) }

func (a *addresser) pop() term {
	if n := len(a.stack); n > 0 {
		t := a.stack[n-1]
		a.stack = a.stack[:n-1]
		return t
	}
	return term{}
}

// keep leaves a term as a value: what is made of the stack pointer's variable adds
// what that lacks.
func (a *addresser) keep(t term) {
	if t.kind != pointer {
		return
	}
	if !a.onStack {
		if t.narrow != nil && t.offset > 0 {
			l := &a.lines[t.to]
			l.after = append(appendI32(append(l.after, opI32Const), int32(t.offset)), opI32Add)
		}
		return
	}
	code := appendI32([]byte{opGet, stackLocal, opI32Const}, int32(t.offset+returnSize))
	code = append(code, opI32Add)
	if t.wide {
		code = append(code, opI64ExtendU)
	}
	a.remove(t.from, t.to+1)
	a.put(t.from, code...)
}

// step follows one instruction.
func (a *addresser) step(i int, l *line) {
	switch op := l.op; {
	case op == opGet && a.onStack && l.number != stackLocal:
		a.push(term{})
	case op == opGet:
		a.push(term{kind: pointer, local: uint32(l.number), wide: !a.onStack, from: i, to: i})
	case op == opI32Const || op == opI64Const:
		a.push(term{kind: constant, wide: op == opI64Const, offset: l.number, from: i, to: i})
	case op == opI32Add || op == opI64Add:
		a.add(i, op == opI64Add)
	case op == opI64ExtendU || op == opI32Wrap:
		a.convert(i, op == opI64ExtendU)
	case op >= opI32Load && op <= lastLoad:
		a.access(i, a.pop())
		a.push(term{})
	case op >= opI32Store && op <= opI64Store32:
		a.keep(a.pop())
		a.access(i, a.pop())
	default:
		a.other(i, l)
	}
}

func (a *addresser) other(i int, l *line) {
	switch op := l.op; {
	case op == opSet, op == opTee:
		a.keep(a.pop())
		a.forget(uint32(l.number))
		switch {
		case op == opTee && a.onStack:
			a.push(term{})
		case op == opTee:
			a.push(term{kind: pointer, local: uint32(l.number), wide: true, from: i, to: i, set: true})
		}
	case op == opGlobalGet, op == opF32Const, op == opF64Const, op == opMemorySize:
		a.push(term{})
	case op == opGlobalSet, op == opDrop:
		a.keep(a.pop())
	case op == opSelect:
		a.replace(3)
	case op >= firstNumeric && op <= lastNumeric:
		a.replace(operands(op))
	default:
		a.control(l.op)
	}
}

// replace makes one value of some.
func (a *addresser) replace(n int) {
	for range n {
		a.keep(a.pop())
	}
	a.push(term{})
}

// operands is how many operands a numeric instruction has.
func operands(op byte) int {
	switch {
	case op == opI32Eqz, op == opI64Eqz, op >= 0x67 && op <= 0x69, op >= 0x79 && op <= 0x7b,
		op >= 0x8b && op <= 0x91, op >= 0x99 && op <= 0x9f, op >= opI32Wrap:
		return 1
	}
	return 2
}

// control ends what is known of the stack.
func (a *addresser) control(op byte) {
	for len(a.stack) > 0 {
		a.keep(a.pop())
	}
	switch op {
	case opBlock, opIf, opTryTable:
		a.depth++
	case opLoop:
		a.depth++
		a.forgetAll(0)
	case opEnd:
		a.closeBlock()
		return
	case opElse:
		a.forgetAll(a.depth)
	}
	a.group++
}

func (a *addresser) closeBlock() {
	for len(a.stack) > 0 {
		a.keep(a.pop())
	}
	a.forgetAll(a.depth)
	a.depth--
	a.group++
	a.inFrame = a.framed
}

// forgetAll forgets pointers that became 32 bits in blocks so deep.
func (a *addresser) forgetAll(depth int) {
	for local, k := range a.known {
		if k.depth >= depth {
			a.try(k)
			delete(a.known, local)
		}
	}
}

// forget is for a variable that is set.
func (a *addresser) forget(local uint32) {
	if k := a.known[local]; k != nil {
		a.try(k)
		delete(a.known, local)
	}
	for n := range a.stack { // values from before
		if t := &a.stack[n]; t.kind == pointer && t.local == local {
			a.keep(*t)
			*t = term{}
		}
	}
}

// add follows an addition.
func (a *addresser) add(i int, wide bool) {
	y, x := a.pop(), a.pop()
	sum := x.offset + y.offset
	if x.kind == pointer && y.kind == constant && x.to+1 == y.from && y.to+1 == i && x.wide == wide && a.fits(sum) && y.offset >= 0 {
		x.offset, x.to = sum, i
		a.push(x)
		return
	}
	a.keep(y)
	a.keep(x)
	a.push(term{})
}

func (a *addresser) fits(offset int64) bool {
	if a.onStack {
		return offset >= 0 && offset < maxFrame
	}
	return offset >= 0 && offset < maxOffset
}

// convert follows a change between 32 and 64 bits.
func (a *addresser) convert(i int, wide bool) {
	t := a.pop()
	if t.kind != pointer || t.to+1 != i || t.wide == wide || (wide && !a.onStack) {
		a.keep(t)
		a.push(term{})
		return
	}
	t.wide, t.to = wide, i
	if !a.onStack {
		a.narrow(&t)
	}
	a.push(t)
}

// access follows a load or a store whose address is known.
func (a *addresser) access(i int, t term) {
	l := &a.lines[i]
	if t.kind != pointer || t.wide {
		a.keep(t)
		return
	}
	offset := l.number + t.offset
	ceiling := offset + sizeOf(l.op)
	switch {
	case a.onStack:
		offset += returnSize
		a.remove(t.from, t.to+1)
		a.put(t.from, opGet, stackLocal)
		a.useStack(t.from, ceiling+returnSize)
	case t.narrow != nil:
		a.use(t.narrow, t.to, ceiling)
	default:
		return // an address of 32 bits is what it is
	}
	if offset != l.number {
		l.code = a.moved(l, offset)
	}
}

// moved is an access with another offset, and without an alignment that it may lack.
func (a *addresser) moved(l *line, offset int64) []byte {
	return appendU32([]byte{l.op, 0}, uint32(offset))
}

// sizeOf is how many bytes a load or store moves.
func sizeOf(op byte) int64 {
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

// emit joins the lines.
func (a *addresser) emit(f *finder, body []byte, start int) []byte {
	out := make([]byte, 0, len(body)+len(body)/8)
	if a.spare == a.first {
		out = append(out, body[:start]...)
	} else {
		out = appendU32(out, uint32(f.local.groups+1))
		out = append(out, body[f.local.at:start]...)
		out = append(appendU32(out, a.spare-a.first), typeI32)
	}
	for _, l := range a.lines {
		out = append(out, l.before...)
		switch {
		case l.code != nil:
			out = append(out, l.code...)
		case !l.gone:
			out = append(out, body[l.at:l.end]...)
		}
		out = append(out, l.after...)
	}
	return slices.Clip(out)
}
