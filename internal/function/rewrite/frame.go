package rewrite

// hasStack says whether the function begins as those of Go that have a stack pointer.
func (a *addresser) hasStack(params uint32) bool {
	return params == 1 && a.is(0, opGlobalGet, opSet) && a.lines[0].number == stackGlobal && a.lines[1].number == stackLocal
}

// moves says whether the lines from one on add to the stack pointer.
func (a *addresser) moves(at int) (by int64, ok bool) {
	if !a.is(at, opGet, opI32Const) || !a.is(at+3, opTee, opGlobalSet) {
		return 0, false
	}
	by = a.lines[at+1].number
	switch a.lines[at+2].op {
	case opI32Add:
	case opI32Sub:
		by = -by
	default:
		return 0, false
	}
	return by, a.lines[at].number == stackLocal && a.lines[at+3].number == stackLocal && a.lines[at+4].number == stackGlobal
}

// returnAddress says whether the lines from one on put a return address on the stack.
func (a *addresser) returnAddress(at int) bool {
	by, ok := a.moves(at)
	return ok && by == -returnSize && a.is(at+5, opGet, opI64Const, opI64Store) && a.lines[at+5].number == stackLocal && a.lines[at+7].number == 0
}

func (a *addresser) put(at int, code ...byte) { a.lines[at].code, a.lines[at].gone = code, false }

func (a *addresser) remove(from, to int) {
	for i := from; i < to; i++ {
		a.lines[i].gone, a.lines[i].code = true, nil
	}
}

// reload sets the variable of the stack pointer.
func reload() []byte {
	return []byte{opGlobalGet, stackGlobal, opI32Const, returnSize, opI32Sub, opSet, stackLocal}
}

// shiftStack has the variable of the stack pointer hold 8 less, and says whether the
// function does nothing with it that is not understood. Its other uses are changed later.
func (a *addresser) shiftStack() bool {
	var open []byte // the blocks
	frameless := true
	for i := 0; i < len(a.lines); i++ {
		switch op := a.lines[i].op; {
		case op == opBlock, op == opLoop, op == opIf:
			open = append(open, op)
		case op == opEnd && len(open) > 0:
			open = open[:len(open)-1]
		}
		switch by, ok := a.moves(i); {
		case ok && a.returnAddress(i):
			a.remove(i, i+5)
			a.put(i, opGet, stackLocal, opGlobalSet, stackGlobal)
			a.lines[i+5].code = []byte{opGet, stackLocal}
			if !a.returns(i+8, len(open) > 0 && open[len(open)-1] == opIf) {
				return false
			}
			i += 7
		case ok:
			end := i + 5
			if more, again := a.moves(end); again && !a.returnAddress(end) {
				by, end = by+more, end+5
			}
			add := appendI32([]byte{opGet, stackLocal, opI32Const}, int32(by))
			add = append(add, opI32Add, opTee, stackLocal, opI32Const, returnSize, opI32Add, opGlobalSet, stackGlobal)
			a.remove(i, end)
			a.put(i, add...)
			a.lines[i].frame = -by
			if by < 0 {
				frameless = false
			}
			i = end - 1
		case a.is(i, opGlobalGet, opSet) && a.lines[i].number == stackGlobal && a.lines[i+1].number == stackLocal:
			a.remove(i, i+2)
			a.put(i, reload()...)
			i++
		case (a.lines[i].op == opSet || a.lines[i].op == opTee) && a.lines[i].number == stackLocal,
			a.lines[i].op == opGlobalSet && a.lines[i].number == stackGlobal:
			return false
		}
	}
	a.framed, a.inFrame = frameless, frameless
	return true
}

// returns looks for the call after a return address was stored, and has the stack
// pointer read again only where the code after the call begins. It says whether it
// found the call. In an if there are only calls that never come back: to grow the
// stack, and to panic; then the program goes on elsewhere.
func (a *addresser) returns(at int, never bool) bool {
	for ; at < len(a.lines); at++ {
		switch op := a.lines[at].op; {
		case op == opCall || op == opCallIndirect:
			if !a.is(at+1, opGlobalGet, opSet) {
				return false
			}
			if a.is(at+3, opBrIf, opEnd) {
				a.remove(at+1, at+3)
				a.lines[at+1].op, a.lines[at+2].op = opNop, opNop // they are done
				if never {
					a.lines[at+4].before = []byte{opUnreachable}
				} else {
					a.lines[at+4].code = append([]byte{opEnd}, reload()...)
				}
			}
			return true
		case op == opGet && a.lines[at].number == stackLocal, op == opBlock, op == opLoop, op == opIf, op == opEnd, op == opBr, op == opBrIf:
			return false // nothing of this is between them
		}
	}
	return false
}
