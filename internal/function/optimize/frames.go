package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// isGoFunction reports whether the function begins like those of Go that have a stack pointer.
func (a *addressFolder) isGoFunction(params uint32) bool {
	return params == 1 && a.readsStackPointer(0)
}

// readsStackPointer reports whether two instructions copy the stack pointer's global to its local.
func (a *addressFolder) readsStackPointer(at int) bool {
	return a.matches(at, opGlobalGet, opLocalSet) && a.instructions[at].operand == stackGlobal && a.instructions[at+1].operand == stackLocal
}

// stackAdjustment reports whether five instructions from one on add a constant to the stack pointer.
func (a *addressFolder) stackAdjustment(at int) (by int64, ok bool) {
	if !a.matches(at, opLocalGet, opI32Const) || !a.matches(at+3, opLocalTee, opGlobalSet) {
		return 0, false
	}
	by = a.instructions[at+1].operand
	switch a.instructions[at+2].Op {
	case opI32Add:
	case opI32Sub:
		by = -by
	default:
		return 0, false
	}
	return by, a.instructions[at].operand == stackLocal && a.instructions[at+3].operand == stackLocal && a.instructions[at+4].operand == stackGlobal
}

// storesReturnAddress reports whether eight instructions from one on push a return address.
func (a *addressFolder) storesReturnAddress(at int) bool {
	by, ok := a.stackAdjustment(at)
	return ok && by == -returnSize && a.matches(at+5, opLocalGet, opI64Const, opI64Store) && a.instructions[at+5].operand == stackLocal && a.instructions[at+7].operand == 0
}

// reloadStackPointer is code that sets the local of the stack pointer from its global.
func reloadStackPointer() []byte {
	return []byte{opGlobalGet, stackGlobal, opI32Const, returnSize, opI32Sub, opLocalSet, stackLocal}
}

// rebaseStackPointer lets the local of the stack pointer hold 8 less, and reports whether all
// assignments to it are understood. Its uses are rewritten later.
func (a *addressFolder) rebaseStackPointer() bool {
	var open []byte   // the blocks
	frameless := true // or the function allocates no frame
	for i := 0; i < len(a.instructions); i++ {
		switch op := a.instructions[i].Op; {
		case op == opBlock, op == opLoop, op == opIf:
			open = append(open, op)
		case op == opEnd && len(open) > 0:
			open = open[:len(open)-1]
		}
		switch by, ok := a.stackAdjustment(i); {
		case ok && a.storesReturnAddress(i):
			a.deleteInstructions(i, i+5)
			a.replaceInstruction(i, opLocalGet, stackLocal, opGlobalSet, stackGlobal)
			a.instructions[i+5].code = []byte{opLocalGet, stackLocal}
			if !a.rewriteReturnPoint(i+8, len(open) > 0 && open[len(open)-1] == opIf) {
				return false
			}
			i += 7
		case ok:
			end := a.rewriteAdjustment(i, by)
			frameless = frameless && a.instructions[i].frameSize <= 0
			i = end - 1
		case a.readsStackPointer(i):
			a.deleteInstructions(i, i+2)
			a.replaceInstruction(i, reloadStackPointer()...)
			i++
		case (a.instructions[i].Op == opLocalSet || a.instructions[i].Op == opLocalTee) && a.instructions[i].operand == stackLocal,
			a.instructions[i].Op == opGlobalSet && a.instructions[i].operand == stackGlobal:
			return false
		}
	}
	a.allocatesFrame, a.inFrame = frameless, frameless
	return true
}

// rewriteAdjustment rewrites an addition to the stack pointer, and a second one that follows it at
// once. It returns the index of what follows.
func (a *addressFolder) rewriteAdjustment(i int, by int64) (end int) {
	end = i + 5
	more, again := a.stackAdjustment(end)
	frameSize := -by
	if again && !a.storesReturnAddress(end) {
		by, end, frameSize = by+more, end+5, -by-more
	}
	code := wasmbin.AppendSigned([]byte{opLocalGet, stackLocal, opI32Const}, int64(int32(by)))
	code = append(code, opI32Add, opLocalTee, stackLocal, opI32Const, returnSize, opI32Add, opGlobalSet, stackGlobal)
	a.deleteInstructions(i, end)
	a.replaceInstruction(i, code...)
	a.instructions[i].frameSize = frameSize
	return end
}

// rewriteReturnPoint looks for the call behind a stored return address, and moves the reload of the
// stack pointer to where the code behind the call begins: control comes there from the call and, when
// a goroutine resumes, from the function's entry. It reports whether it found the call. A call in an
// if never returns to the code behind it: it grows the stack, after which the function is entered
// anew, or it panics.
func (a *addressFolder) rewriteReturnPoint(at int, neverReturns bool) bool {
	for ; at < len(a.instructions); at++ {
		a.budget.spend(1)
		switch op := a.instructions[at].Op; {
		case op == opCall || op == opCallIndirect:
			if !a.matches(at+1, opGlobalGet, opLocalSet) {
				return false
			}
			if a.matches(at+3, opBrIf, opEnd) {
				a.deleteInstructions(at+1, at+3)
				a.instructions[at+1].Op, a.instructions[at+2].Op = opNop, opNop // not to be matched again
				if neverReturns {
					a.instructions[at+4].before = []byte{opUnreachable}
				} else {
					a.instructions[at+4].code = append([]byte{opEnd}, reloadStackPointer()...)
				}
			}
			return true
		case op == opLocalGet && a.instructions[at].operand == stackLocal, op == opBlock, op == opLoop, op == opIf, op == opEnd, op == opBr, op == opBrIf:
			return false // none of them is part of a call sequence
		}
	}
	return false
}
