package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// isGoFunction reports whether the function begins like a function of Go's with a stack pointer.
func (c *bodyCode) isGoFunction(params uint32) bool {
	return params == 1 && c.readsStackPointer(0)
}

// readsStackPointer reports whether two instructions copy the stack pointer's global to its local.
func (c *bodyCode) readsStackPointer(at int) bool {
	return c.matches(at, opGlobalGet, opLocalSet) && c.instructions[at].operand == stackGlobal && c.instructions[at+1].operand == stackLocal
}

// stackAdjustment reports whether the five instructions from at on add a constant to the stack
// pointer.
func (c *bodyCode) stackAdjustment(at int) (by int64, ok bool) {
	if !c.matches(at, opLocalGet, opI32Const) || !c.matches(at+3, opLocalTee, opGlobalSet) {
		return 0, false
	}
	by = c.instructions[at+1].operand
	switch c.instructions[at+2].Op {
	case opI32Add:
	case opI32Sub:
		by = -by
	default:
		return 0, false
	}
	return by, c.instructions[at].operand == stackLocal && c.instructions[at+3].operand == stackLocal && c.instructions[at+4].operand == stackGlobal
}

// storesReturnAddress reports whether the eight instructions from at on push a return address.
func (c *bodyCode) storesReturnAddress(at int) bool {
	by, ok := c.stackAdjustment(at)
	return ok && by == -returnSize && c.matches(at+5, opLocalGet, opI64Const, opI64Store) && c.instructions[at+5].operand == stackLocal && c.instructions[at+7].operand == 0
}

// reloadStackPointer returns code that sets the local of the stack pointer from its global.
func reloadStackPointer() []byte {
	return []byte{opGlobalGet, stackGlobal, opI32Const, returnSize, opI32Sub, opLocalSet, stackLocal}
}

// rebaseStackPointer lets the local of the stack pointer hold 8 less, and reports whether the
// function allocates no frame, and whether all assignments to the local are understood. The uses of
// the local are rewritten later.
func (c *bodyCode) rebaseStackPointer() (frameless, understood bool) {
	var open []byte // the blocks
	frameless = true
	for i := 0; i < len(c.instructions); i++ {
		switch op := c.instructions[i].Op; {
		case op == opBlock, op == opLoop, op == opIf:
			open = append(open, op)
		case op == opEnd && len(open) > 0:
			open = open[:len(open)-1]
		}
		switch by, ok := c.stackAdjustment(i); {
		case ok && c.storesReturnAddress(i):
			c.delete(i, i+5)
			c.replace(i, opLocalGet, stackLocal, opGlobalSet, stackGlobal)
			c.instructions[i+5].code = []byte{opLocalGet, stackLocal}
			if !c.rewriteReturnPoint(i+8, len(open) > 0 && open[len(open)-1] == opIf) {
				return false, false
			}
			i += 7
		case ok:
			end := c.rewriteAdjustment(i, by)
			frameless = frameless && c.instructions[i].frameSize <= 0
			i = end - 1
		case c.readsStackPointer(i):
			c.delete(i, i+2)
			c.replace(i, reloadStackPointer()...)
			i++
		case (c.instructions[i].Op == opLocalSet || c.instructions[i].Op == opLocalTee) && c.instructions[i].operand == stackLocal,
			c.instructions[i].Op == opGlobalSet && c.instructions[i].operand == stackGlobal:
			return false, false
		}
	}
	return frameless, true
}

// rewriteAdjustment rewrites an addition to the stack pointer, and a second one that follows it at
// once. It returns the index of the next instruction.
func (c *bodyCode) rewriteAdjustment(i int, by int64) (end int) {
	end = i + 5
	more, again := c.stackAdjustment(end)
	frameSize := -by
	if again && !c.storesReturnAddress(end) {
		by, end, frameSize = by+more, end+5, -by-more
	}
	code := wasmbin.AppendSigned([]byte{opLocalGet, stackLocal, opI32Const}, int64(int32(by)))
	code = append(code, opI32Add, opLocalTee, stackLocal, opI32Const, returnSize, opI32Add, opGlobalSet, stackGlobal)
	c.delete(i, end)
	c.replace(i, code...)
	c.instructions[i].frameSize = frameSize
	return end
}

// rewriteReturnPoint looks for the call behind a stored return address, and moves the reload of the
// stack pointer to where the code behind the call begins: control comes there from the call and,
// when a goroutine resumes, from the function's entry. It reports whether it found the call. A call
// in an if never returns to the code behind it: it grows the stack, after which the function is
// entered anew, or it panics.
func (c *bodyCode) rewriteReturnPoint(at int, neverReturns bool) bool {
	for ; at < len(c.instructions); at++ {
		c.budget.spend(1)
		switch op := c.instructions[at].Op; {
		case op == opCall || op == opCallIndirect:
			if !c.matches(at+1, opGlobalGet, opLocalSet) {
				return false
			}
			if c.matches(at+3, opBrIf, opEnd) {
				c.delete(at+1, at+3)
				c.instructions[at+1].Op, c.instructions[at+2].Op = opNop, opNop // not to be matched again
				if neverReturns {
					c.instructions[at+4].before = []byte{opUnreachable}
				} else {
					c.instructions[at+4].code = append([]byte{opEnd}, reloadStackPointer()...)
				}
			}
			return true
		case op == opLocalGet && c.instructions[at].operand == stackLocal, op == opBlock, op == opLoop, op == opIf, op == opEnd, op == opBr, op == opBrIf:
			return false // none of them is part of a call sequence
		}
	}
	return false
}
