package rewrite

import (
	"bytes"
	"slices"
)

// Code that may be entered in its middle is slow: for the engine, each variable then
// has one value more in each segment. Of the segments of a function in Go only those
// are entered that a call returns to, and the one that calls runtime.deferreturn, when
// a panic is recovered from; nothing else is in it. A call within an if never comes
// back: it grows the stack, and the function is entered anew, or it panics. So in a
// module that says that Go made it all others are left out of the tables, and loops
// that nobody enters in the middle have none. Who enters them nevertheless traps.
//
// This is how Go's cmd/internal/obj/wasm makes resume points: one behind each CALL, none
// behind CALLNORESUME, the only one that is allowed in a block.

const (
	opUnreachable, opReturn = 0x00, 0x0f
	opI64Const, opI64Store  = 0x42, 0x37
	maxKnown                = 64 // local variables that are followed
	maxRounds               = 64
	numberBits              = 16     // of a return address: the number of the segment
	firstFunction           = 0x1000 // in a return address: the number of Go's first function
)

// made says whether the module says that it was written in Go.
func (m *module) madeByGo() bool {
	return bytes.Contains(m.producers, []byte("\x08language\x01\x02Go"))
}

// variables are local ones, a bit for each.
type variables uint64

func variable(local uint32) variables {
	if local < maxKnown {
		return 1 << local
	}
	return 0
}

// A flow is what a segment does to variables.
type flow struct {
	reads   variables // before it sets them
	sets    variables
	through bool // its end is reached
	call    bool // it begins with a call
	live    variables
}

// access notes what an instruction does to variables. What is set in a part that may
// not be executed counts as not set.
func (f *finder) access(n int, i instruction) {
	local, w := f.operandAt(i), &f.t.flows[n]
	f.t.many = f.t.many || local >= maxKnown
	if i.op == opGet {
		w.reads |= variable(local) &^ w.sets
	} else if f.depth == 0 {
		w.sets |= variable(local)
	}
}

// returnAddress notes the number of a segment that a call of segment n returns to: the
// call is preceded by a store of the number, and of the function's, at the stack pointer.
func (f *finder) returnAddress(n int, i instruction) {
	c, sp := f.past[1], f.past[0]
	if f.depth > 0 || c.op != opI64Const || c.end != i.at || sp.op != opGet || sp.end != c.at || f.operandAt(sp) != stackLocal || f.numberAt(i) != 0 {
		return
	}
	address := f.numberAt(c)
	if number := address & (1<<numberBits - 1); address>>numberBits >= firstFunction && number < int64(len(f.t.table)) {
		f.t.flows[n].call = !f.begun
		f.t.returns = append(f.t.returns, f.t.segment(int32(number)))
	}
}

// leadsToCall says whether an instruction may be a part of what is before a call
// without arguments: the stack pointer is read and moved, the frame tried, and the
// return address pushed.
func leadsToCall(op byte) bool {
	switch op {
	case opNop, opGet, opSet, opTee, opGlobalGet, opGlobalSet, opI32Const, opI64Const, opI32Add, opI32Sub, opI64Store, opI32Load8U, opDrop:
		return true
	}
	return false
}

// enterable says which segments are entered.
func (t *tangle) enterable() []bool {
	may := make([]bool, len(t.spans))
	if t.anywhere || t.many || !t.settle() {
		for i := range may {
			may[i] = true
		}
		return may
	}
	for i, w := range t.flows {
		may[i] = i == 0 || w.call && w.live&^t.before == 0
	}
	for _, i := range t.returns {
		may[i] = true
	}
	return may
}

// settle finds what variables each segment, or one that follows, reads before they are
// set.
func (t *tangle) settle() bool {
	for range maxRounds {
		changed := false
		for i := range slices.Backward(t.spans) {
			live := t.liveAt(i)
			changed = changed || live != t.flows[i].live
			t.flows[i].live = live
		}
		if !changed {
			return true
		}
	}
	return false
}

func (t *tangle) liveAt(i int) variables {
	w := t.flows[i]
	live := w.reads
	if w.through && i+1 < len(t.spans) {
		live |= t.flows[i+1].live &^ w.sets
	}
	for _, e := range t.spans[i].edits {
		if e.kind == editJump {
			live |= t.flows[t.segment(e.value)].live &^ e.sets
		}
	}
	return live
}
