package optimize

import (
	"slices"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

const (
	maxTrackedLocals  = 64     // the bits of a localSet
	maxLivenessPasses = 64     // over the segments; otherwise every segment is a resume point
	segmentBits       = 16     // of a return address: the table index of the segment
	firstFunction     = 0x1000 // in a return address: the number of Go's first function
)

// localSet is a set of local variables, a bit for each of the first 64.
type localSet uint64

func localBit(local uint32) localSet {
	if local < maxTrackedLocals {
		return 1 << local
	}
	return 0
}

// dataFlow is the state of the liveness analysis for a segment.
type dataFlow struct {
	uses         localSet // read before the segment sets them
	defs         localSet // certainly set
	fallsThrough bool     // control may reach its end
	onlyCalls    bool     // it begins with a call sequence
	liveIn       localSet // the result: read, here or later, before they are set
}

// recordLocal adds an access to a local to the data flow. A definition in a block that may be skipped
// does not count.
func (f *bodyOptimizer) recordLocal(n int, i wasmbin.Instruction) {
	local, flow := f.indexOperand(i), &f.loop.flows[n]
	f.loop.untrackedLocals = f.loop.untrackedLocals || local >= maxTrackedLocals
	if i.Op == opLocalGet {
		flow.uses |= localBit(local) &^ flow.defs
	} else if f.depth == 0 {
		flow.defs |= localBit(local)
	}
}

// noteReturnAddress records the segment that a call of segment n returns to: Go stores the
// function's number and the segment's at the stack pointer before the call.
func (f *bodyOptimizer) noteReturnAddress(n int, i wasmbin.Instruction) {
	c, sp := f.previous[1], f.previous[0]
	if f.depth > 0 || c.Op != opI64Const || c.End != i.At || sp.Op != opLocalGet || sp.End != c.At || f.indexOperand(sp) != stackLocal || f.constantOperand(i) != 0 {
		return
	}
	address := f.constantOperand(c)
	if index := address & (1<<segmentBits - 1); address>>segmentBits >= firstFunction && index < int64(len(f.loop.table)) {
		f.loop.flows[n].onlyCalls = !f.pastCallPrologue
		f.loop.returnTargets = append(f.loop.returnTargets, f.loop.targetOf(int32(index)))
	}
}

// inCallSequence reports whether an instruction may belong to a call sequence without arguments: it
// reads and moves the stack pointer, probes the frame, or stores the return address.
func inCallSequence(op byte) bool {
	switch op {
	case opNop, opLocalGet, opLocalSet, opLocalTee, opGlobalGet, opGlobalSet, opI32Const, opI64Const, opI32Add, opI32Sub, opI64Store, opI32Load8U, opDrop:
		return true
	}
	return false
}

// resumePoints reports for each segment whether the runtime may enter the function there: at the
// first segment, behind a call, and at the call of runtime.deferreturn, at which a recovered panic
// resumes. The last kind is recognised by its form: nothing but a call sequence, and no live local
// that the function's prologue does not set.
func (t *dispatchLoop) resumePoints() []bool {
	enterable := make([]bool, len(t.segments))
	if t.enterableAnywhere || t.untrackedLocals || !t.solveLiveness() {
		for i := range enterable {
			enterable[i] = true
		}
		return enterable
	}
	for i, flow := range t.flows {
		enterable[i] = i == 0 || flow.onlyCalls && flow.liveIn&^t.definedBefore == 0
	}
	for _, i := range t.returnTargets {
		enterable[i] = true
	}
	return enterable
}

// solveLiveness computes liveIn of all segments: backward data-flow analysis, iterated to its fixed
// point (Kildall, POPL 1973). It reports false when that takes more than maxLivenessPasses.
func (t *dispatchLoop) solveLiveness() bool {
	for range maxLivenessPasses {
		changed := false
		for i := range slices.Backward(t.segments) {
			live := t.liveIn(i)
			changed = changed || live != t.flows[i].liveIn
			t.flows[i].liveIn = live
		}
		if !changed {
			return true
		}
	}
	return false
}

// liveIn evaluates the data-flow equation of a segment: its uses, and the locals that its
// successors need and it does not define.
func (t *dispatchLoop) liveIn(i int) localSet {
	flow := t.flows[i]
	live := flow.uses
	if flow.fallsThrough && i+1 < len(t.segments) {
		live |= t.flows[i+1].liveIn &^ flow.defs
	}
	for _, e := range t.segments[i].rewrites {
		if e.kind == jumpSite {
			live |= t.flows[t.targetOf(e.value)].liveIn &^ e.defs
		}
	}
	return live
}
