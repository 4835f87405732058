package rewrite

import "slices"

// Go's compiler for WebAssembly makes every jump of a function one through a table: the
// code lies in segments within one loop, and a jump sets a local variable to the
// target's number and goes back to the head of the loop, where a br_table leads to the
// segment. That is an indirect jump, and a check of the meter, for every branch of the
// program. Goroutines need it: a function is entered again in its middle.
//
//	loop
//	  block block ... block
//	    local.get pc, br_table
//	  end  ;; segment 0
//	  ...  i32.const 7, local.set pc, br to the loop
//	  end  ;; segment 1
//	  ...
//	end
//
// straighten makes the jumps direct. One to a later segment becomes a branch to the end
// of the block before it. Segments from the target of a jump back up to where it comes
// from become a loop of their own. Each such loop begins with a table for those who
// come to its middle, which is passed over while pc is 0: that is the case unless a
// function is entered again, or somebody jumps into a loop's middle, and whoever has
// arrived sets pc to 0.
//
// What doesn't look exactly like this is left as it is.

const (
	// maxDepth bounds how deep loops may lie in each other, or the code could become
	// as large as the square of what it was.
	maxDepth = 64
	// maxGrowth bounds how many entries the tables may have, in bytes of code.
	maxGrowth = 4
)

const (
	opBlock, opLoop, opIf, opEnd = 0x02, 0x03, 0x04, 0x0b
	opBr, opBrIf, opBrTable      = 0x0c, 0x0d, 0x0e
	opGet, opSet, opTee          = 0x20, 0x21, 0x22
	opI32Const, opI32Sub         = 0x41, 0x6b
	opI32GeS                     = 0x4e
	voidType                     = 0x40
)

// A span is the code of one segment.
type span struct {
	from, to int
	edits    []edit
}

// An edit is something in a segment that is written in another way.
type edit struct {
	at, end int
	kind    editKind
	depth   int   // blocks of the segment that are open there
	value   int32 // of a jump: the number of its target; of a branch: a label outside of the loop
	op      byte
	sets    variables // of a jump: what was set in the segment before
}

type editKind uint8

const (
	editJump editKind = iota
	editBranch
	editLocal // another variable is used, since this one must stay 0
)

// A tangle is a function's code with jumps through a table.
type tangle struct {
	from, to int // of the loop in the body
	pc       uint32
	table    []uint32 // the segment for each number; the last one is for all others
	spans    []span

	anywhere bool      // any segment may be entered
	many     bool      // there are more variables than are followed
	before   variables // set before the loop
	flows    []flow    // of the segments
	returns  []int     // segments that calls return to
}

// segment returns where a number leads.
func (t *tangle) segment(number int32) int {
	return int(t.table[min(uint64(uint32(number)), uint64(len(t.table)-1))])
}

// A finder looks for a tangle in a body.
type finder struct {
	walker
	t     tangle
	depth int // blocks open within the segment
	past  [2]instruction
	held  heldKind
	begun bool   // the segment has code that is not a part of a call
	lines []line // room for an addresser's
}

type heldKind uint8

// What the variable pc holds.
const (
	heldNothing heldKind = iota
	heldSet              // it was set just now
	heldConst            // and then a constant was pushed
)

type instruction struct {
	at, end int
	op      byte
}

// find returns the body's tangle.
func (f *finder) find(body []byte) (*tangle, bool) {
	f.begin(body)
	f.t, f.past, f.held = tangle{}, [2]instruction{}, heldNothing
	var before variables
	for f.more() && !f.head() {
		i := f.next()
		if i.op == opEnd && len(f.open) == 0 {
			return nil, false // the end of the body, or close to it
		}
		if i.op == opSet || i.op == opTee {
			before |= variable(f.operandAt(i))
		}
	}
	f.t.before, f.t.anywhere = before, !f.m.madeByGo()
	if !f.more() || !f.ordered() || !f.segments() {
		return nil, false
	}
	for f.more() { // the rest must not use pc
		if i := f.next(); isLocal(i.op) && f.operandAt(i) == f.t.pc {
			return nil, false
		}
	}
	return &f.t, f.err == nil
}

// begin begins to read a body, after its local variables.
func (f *finder) begin(body []byte) {
	f.reader = reader{b: body}
	f.checks, f.open, f.callees = f.checks[:0], f.open[:0], f.callees[:0]
	f.locals()
	f.now = 0
	f.mark()
}

// next reads one instruction.
func (f *finder) next() instruction {
	i := instruction{at: f.off, op: f.b[f.off]}
	f.instruction()
	i.end = f.off
	return i
}

func isLocal(op byte) bool { return op >= opGet && op <= opTee }

// operandAt is the first number after the opcode.
func (f *finder) operandAt(i instruction) uint32 {
	r := reader{b: f.b, off: i.at + 1}
	return r.u32()
}

// head says whether the loop with its table begins here, and reads it if so.
func (f *finder) head() bool {
	r := reader{b: f.b, off: f.off}
	if r.byte() != opLoop || r.byte() != voidType {
		return false
	}
	count := 0
	for r.more() && r.b[r.off] == opBlock {
		r.byte()
		if r.byte() != voidType {
			return false
		}
		count++
	}
	if count < 2 || r.byte() != opGet {
		return false
	}
	t := tangle{from: f.off, pc: r.u32()}
	if r.byte() != opBrTable {
		return false
	}
	for range r.count(1) + 1 {
		t.table = append(t.table, r.index("segment", count))
	}
	if r.byte() != opEnd || r.err != nil {
		return false
	}
	t.spans, t.flows = make([]span, count), make([]flow, count)
	f.t = t
	return f.enter(r.off, count)
}

// enter passes over the head.
func (f *finder) enter(code, count int) bool {
	for f.off < code && f.err == nil {
		f.next()
	}
	f.t.spans[0].from = f.off
	return f.err == nil && len(f.open) >= count
}

// ordered says whether larger numbers are of later segments, and 0 of the first.
func (f *finder) ordered() bool { return slices.IsSorted(f.t.table) && f.t.table[0] == 0 }

// segments reads the code up to the end of the loop.
func (f *finder) segments() bool {
	for n := range f.t.spans {
		s := &f.t.spans[n]
		s.from, f.depth, f.begun = f.off, 0, false
		for {
			if !f.more() {
				return false
			}
			i := f.next()
			if i.op == opEnd && f.depth == 0 {
				s.to = i.at
				f.t.flows[n].through = f.past[1].end != i.at || !ends(f.past[1].op)
				break
			}
			if f.err != nil || !f.note(s, n, i) {
				return false
			}
			f.past[0], f.past[1] = f.past[1], i
		}
		if f.held != heldNothing {
			return false
		}
	}
	f.t.to = f.off
	return true
}

// ends says whether nothing is executed after an instruction.
func ends(op byte) bool { return op == opBr || op == opReturn || op == opUnreachable }

// note looks at an instruction of segment n, and says whether it is one that a tangle
// may have.
func (f *finder) note(s *span, n int, i instruction) bool {
	if f.held != heldNothing {
		return f.follow(s, n, i)
	}
	f.begun = f.begun || !leadsToCall(i.op)
	switch i.op {
	case opBlock, opLoop, opIf:
		f.depth++
	case opEnd:
		f.depth--
	case opBr, opBrIf:
		return f.branch(s, n, i)
	case opBrTable:
		return f.inside(i)
	case opSet:
		if f.operandAt(i) == f.t.pc {
			f.held = heldSet
			return true
		}
		f.access(n, i)
	case opGet, opTee:
		f.access(n, i)
		return f.operandAt(i) != f.t.pc
	case opI64Store:
		f.returnAddress(n, i)
	case opTryTable, opBrOnNull, opBrOnNonNull: // they branch, too, but nothing that is made like this uses them
		return false
	}
	return true
}

// around is how many labels there are up to the loop, from segment n.
func (f *finder) around(n int) int { return f.depth + len(f.t.spans) - 1 - n }

// branch notes a branch out of the loop. Into the dispatch none may lead here.
func (f *finder) branch(s *span, n int, i instruction) bool {
	label, loop := int64(f.operandAt(i)), int64(f.around(n))
	if label < int64(f.depth) {
		return true
	}
	if label > loop {
		s.edits = append(s.edits, edit{i.at, i.end, editBranch, f.depth, int32(label - loop - 1), i.op, 0})
	}
	return label > loop
}

// inside says whether a table of branches stays within its segment.
func (f *finder) inside(i instruction) bool {
	r := reader{b: f.b, off: i.at + 1}
	for range r.count(1) + 1 {
		if int64(r.u32()) >= int64(f.depth) {
			return false
		}
	}
	return true
}

// follow looks at what comes after pc was set: a branch to the loop, or code that only
// keeps a value there for a moment.
func (f *finder) follow(s *span, n int, i instruction) bool {
	set := f.past[1]
	switch {
	case f.held == heldSet && i.op == opBr && f.past[0].op == opI32Const && f.past[0].end == set.at:
		f.held = heldNothing
		r := reader{b: f.b, off: f.past[0].at + 1}
		number := int32(r.signed(32))
		s.edits = append(s.edits, edit{f.past[0].at, i.end, editJump, f.depth, number, opBr, f.t.flows[n].sets})
		return int64(f.operandAt(i)) == int64(f.around(n))
	case f.held == heldSet && i.op == opI32Const:
		f.held = heldConst
		return true
	case f.held == heldConst && i.op == opGet && f.operandAt(i) == f.t.pc:
		f.held = heldNothing
		set = f.past[0]
		s.edits = append(s.edits, edit{set.at, set.end, editLocal, f.depth, 0, opSet, 0}, edit{i.at, i.end, editLocal, f.depth, 0, opGet, 0})
		return true
	}
	return false
}
