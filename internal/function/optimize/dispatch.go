package optimize

import (
	"slices"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// segment is a node of the control-flow graph of a dispatch loop: the code between two entries of
// its table, with the places that are written differently once the loop is gone.
type segment struct {
	from, to int
	rewrites []siteRewrite
}

// siteRewrite is a place in a segment that recoverControlFlow writes differently.
type siteRewrite struct {
	at, end int
	kind    siteKind
	depth   int   // blocks of the segment that are open there
	value   int32 // of a jump: the table index of its target; of a branch: a label outside of the loop
	op      byte
	defs    localSet // of a jump: locals that the segment set before it
}

type siteKind uint8

const (
	jumpSite   siteKind = iota // a jump to another segment
	branchSite                 // a branch out of the dispatch loop
	localSite                  // the program counter's local used as a temporary: it must stay 0
)

// dispatchLoop is a function's code in the form that cmd/internal/obj/wasm gives it.
type dispatchLoop struct {
	from, to int      // of the loop in the body
	pc       uint32   // the local that holds the table index of the next segment
	table    []uint32 // the segment of each index; the last one is the default
	segments []segment

	enterableAnywhere bool       // any segment may be a resume point
	untrackedLocals   bool       // there are more locals than a localSet holds
	definedBefore     localSet   // set before the loop
	flows             []dataFlow // of the segments
	returnTargets     []int      // segments that calls return to
}

// targetOf returns the segment that a table index leads to.
func (t *dispatchLoop) targetOf(index int32) int {
	return int(t.table[min(uint64(uint32(index)), uint64(len(t.table)-1))])
}

// bodyOptimizer runs the passes over function bodies, one after the other.
type bodyOptimizer struct {
	bodyScanner
	budget           *workBudget
	loop             dispatchLoop
	depth            int // blocks open within the segment
	previous         [2]wasmbin.Instruction
	pcState          pcTracking
	pastCallPrologue bool          // the segment has code that is not a part of a call sequence
	instructions     []instruction // reused by address folders
}

// pcTracking is the part of an update of the program counter that matchPCUpdate has seen.
type pcTracking uint8

const (
	pcUnchanged       pcTracking = iota
	pcSet                        // it was set by the previous instruction
	pcSetThenConstant            // and then a constant was pushed
)

// matchDispatchLoop returns the body's dispatch loop. It reports false unless the body looks
// exactly like what cmd/internal/obj/wasm writes.
func (f *bodyOptimizer) matchDispatchLoop(body []byte) (*dispatchLoop, bool) {
	f.begin(body)
	f.loop, f.previous, f.pcState = dispatchLoop{}, [2]wasmbin.Instruction{}, pcUnchanged
	var before localSet
	for f.More() && !f.matchHeader() {
		i := f.next()
		if i.Op == opEnd && len(f.open) == 0 {
			return nil, false // the end of the body, or close to it
		}
		if i.Op == opLocalSet || i.Op == opLocalTee {
			before |= localBit(f.indexOperand(i))
		}
	}
	f.loop.definedBefore, f.loop.enterableAnywhere = before, !f.m.fromGo()
	if !f.More() || !f.tableIsMonotonic() || !f.readSegments() {
		return nil, false
	}
	for f.More() { // the rest must not use the program counter
		if i := f.next(); isLocal(i.Op) && f.indexOperand(i) == f.loop.pc {
			return nil, false
		}
	}
	return &f.loop, f.Err == nil
}

func isLocal(op byte) bool { return op >= opLocalGet && op <= opLocalTee }

// indexOperand returns the first number after the opcode.
func (f *bodyOptimizer) indexOperand(i wasmbin.Instruction) uint32 {
	r := wasmbin.Reader{Data: f.Data, Off: i.At + 1}
	return r.U32()
}

// matchHeader reports whether a dispatch loop begins here, and reads its table if so.
func (f *bodyOptimizer) matchHeader() bool {
	r := wasmbin.Reader{Data: f.Data, Off: f.Off}
	if r.Byte() != opLoop || r.Byte() != typeVoid {
		return false
	}
	count := 0
	for r.More() && r.Data[r.Off] == opBlock {
		r.Byte()
		if r.Byte() != typeVoid {
			return false
		}
		count++
	}
	if count < 2 || r.Byte() != opLocalGet {
		return false
	}
	t := dispatchLoop{from: f.Off, pc: r.U32()}
	if r.Byte() != opBrTable {
		return false
	}
	for range r.Count(1) + 1 {
		t.table = append(t.table, r.Index("segment", count))
	}
	if r.Byte() != opEnd || r.Err != nil {
		return false
	}
	t.segments, t.flows = make([]segment, count), make([]dataFlow, count)
	f.loop = t
	return f.skipHeader(r.Off, count)
}

// skipHeader reads on to the first segment.
func (f *bodyOptimizer) skipHeader(code, count int) bool {
	for f.Off < code && f.Err == nil {
		f.next()
	}
	f.loop.segments[0].from = f.Off
	return f.Err == nil && len(f.open) >= count
}

// tableIsMonotonic reports whether larger indexes lead to later segments, and 0 to the first.
func (f *bodyOptimizer) tableIsMonotonic() bool {
	return slices.IsSorted(f.loop.table) && f.loop.table[0] == 0
}

// readSegments reads the code up to the end of the loop.
func (f *bodyOptimizer) readSegments() bool {
	for n := range f.loop.segments {
		s := &f.loop.segments[n]
		s.from, f.depth, f.pastCallPrologue = f.Off, 0, false
		for {
			if !f.More() {
				return false
			}
			i := f.next()
			if i.Op == opEnd && f.depth == 0 {
				s.to = i.At
				f.loop.flows[n].fallsThrough = f.previous[1].End != i.At || !isTerminator(f.previous[1].Op)
				break
			}
			if f.Err != nil || !f.noteInstruction(s, n, i) {
				return false
			}
			f.previous[0], f.previous[1] = f.previous[1], i
		}
		if f.pcState != pcUnchanged {
			return false
		}
	}
	f.loop.to = f.Off
	return true
}

// isTerminator reports whether control never reaches the code behind an instruction.
func isTerminator(op byte) bool { return op == opBr || op == opReturn || op == opUnreachable }

// noteInstruction records an instruction of segment n, and reports whether a dispatch loop may
// contain it.
func (f *bodyOptimizer) noteInstruction(s *segment, n int, i wasmbin.Instruction) bool {
	if f.pcState != pcUnchanged {
		return f.matchPCUpdate(s, n, i)
	}
	f.pastCallPrologue = f.pastCallPrologue || !inCallSequence(i.Op)
	switch i.Op {
	case opBlock, opLoop, opIf:
		f.depth++
	case opEnd:
		f.depth--
	case opBr, opBrIf:
		return f.noteBranch(s, n, i)
	case opBrTable:
		return f.staysInSegment(i)
	case opLocalSet:
		if f.indexOperand(i) == f.loop.pc {
			f.pcState = pcSet
			return true
		}
		f.recordLocal(n, i)
	case opLocalGet, opLocalTee:
		f.recordLocal(n, i)
		return f.indexOperand(i) != f.loop.pc
	case opI64Store:
		f.noteReturnAddress(n, i)
	case opTryTable, opBrOnNull, opBrOnNonNull: // branches that no producer of dispatch loops uses
		return false
	}
	return true
}

// depthOfLoop returns the label of the dispatch loop in segment n.
func (f *bodyOptimizer) depthOfLoop(n int) int { return f.depth + len(f.loop.segments) - 1 - n }

// noteBranch records a branch out of the loop. No branch may lead to the header.
func (f *bodyOptimizer) noteBranch(s *segment, n int, i wasmbin.Instruction) bool {
	label, loop := int64(f.indexOperand(i)), int64(f.depthOfLoop(n))
	if label < int64(f.depth) {
		return true
	}
	if label > loop {
		s.rewrites = append(s.rewrites, siteRewrite{i.At, i.End, branchSite, f.depth, int32(label - loop - 1), i.Op, 0})
	}
	return label > loop
}

// staysInSegment reports whether all targets of a br_table lie within its segment.
func (f *bodyOptimizer) staysInSegment(i wasmbin.Instruction) bool {
	inside := true
	i.EachLabel(f.Data, func(label uint32) { inside = inside && int64(label) < int64(f.depth) })
	return inside
}

// matchPCUpdate matches the code after an assignment of the program counter: a branch to the loop,
// which makes it a jump, or code that only uses the local as a temporary.
func (f *bodyOptimizer) matchPCUpdate(s *segment, n int, i wasmbin.Instruction) bool {
	set := f.previous[1]
	switch {
	case f.pcState == pcSet && i.Op == opBr && f.previous[0].Op == opI32Const && f.previous[0].End == set.At:
		f.pcState = pcUnchanged
		r := wasmbin.Reader{Data: f.Data, Off: f.previous[0].At + 1}
		index := int32(r.Signed(32))
		s.rewrites = append(s.rewrites, siteRewrite{f.previous[0].At, i.End, jumpSite, f.depth, index, opBr, f.loop.flows[n].defs})
		return int64(f.indexOperand(i)) == int64(f.depthOfLoop(n))
	case f.pcState == pcSet && i.Op == opI32Const:
		f.pcState = pcSetThenConstant
		return true
	case f.pcState == pcSetThenConstant && i.Op == opLocalGet && f.indexOperand(i) == f.loop.pc:
		f.pcState = pcUnchanged
		set = f.previous[0]
		s.rewrites = append(s.rewrites, siteRewrite{set.At, set.End, localSite, f.depth, 0, opLocalSet, 0}, siteRewrite{i.At, i.End, localSite, f.depth, 0, opLocalGet, 0})
		return true
	}
	return false
}
