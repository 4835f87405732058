package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

const (
	// maxDepth bounds how deep loops are nested: each level may have a table with an entry for
	// every segment, so the code could grow to the square of its size.
	maxDepth = 64
	// maxGrowth bounds the entries of all tables, in multiples of the body's size.
	maxGrowth = 4
)

// recoverControlFlow returns the body with structured control flow instead of a dispatch loop, or
// the body as it was if that would be too large.
func (f *bodyOptimizer) recoverControlFlow(t *dispatchLoop, params uint32) []byte {
	s := relooper{loop: t, body: f.Data, scratch: params + uint32(f.locals.Count), budget: f.budget}
	root := s.buildLoopTree()
	if root == nil || f.locals.Count >= maxLocals {
		return f.Data
	}
	s.findEntries()
	s.out = wasmbin.AppendU32(make([]byte, 0, len(f.Data)+len(f.Data)/8+64), uint32(f.locals.Groups+1))
	s.out = append(s.out, f.Data[f.locals.At:f.codeStart()]...)
	s.out = append(s.out, 1, wasmbin.TypeI32)
	s.out = append(s.out, f.Data[f.codeStart():t.from]...)
	s.emitRegion(root)
	if !f.spend(len(s.out)) {
		return f.Data
	}
	return append(s.out, f.Data[t.to:]...)
}

// codeStart returns where the declarations of local variables end.
func (f *bodyOptimizer) codeStart() int { return f.checks[0].offset }

// region is a node of the loop nesting tree: a single segment, the segments of a loop, or all.
type region struct {
	first, last int
	loop        bool
	children    []*region
	parent      *region
	label       int // how many labels are outside of the one that leads here
	headLabel   int // how many are outside of the loop's
}

func (g *region) contains(segment int) bool { return g.first <= segment && segment <= g.last }

// relooper writes the segments of a dispatch loop as nested blocks and loops. The name is from
// A. Zakai, "Emscripten: an LLVM-to-JavaScript compiler" (SPLASH 2011); as in N. Ramsey, "Beyond
// Relooper" (ICFP 2022), the order of the segments is given and decides where each block ends.
type relooper struct {
	loop       *dispatchLoop
	body       []byte
	scratch    uint32 // a local that is free
	leaves     []*region
	loops      map[int]*region // by their first segments
	out        []byte
	enterable  []bool         // segments that are resume points, or targets of jumps through a table
	duplicated map[int]int    // the last segment of the tail that replaces a jump, by the jump's offset
	duplicate  *tailDuplicate // that is being written
	height     int            // open labels
	budget     *workBudget
}

// buildLoopTree nests the segments into loops, from the last to the first: the target of a back
// edge begins a loop, which reaches to the source of its last back edge, and to the end of every
// loop that begins on the way. It returns nil if the result would be too large.
func (s *relooper) buildLoopTree() *region {
	n := len(s.loop.segments)
	last := s.backEdgeSources()
	s.leaves, s.loops = make([]*region, n), map[int]*region{}
	var outer []*region // the roots of what was nested so far, the first one on top
	entries := 0
	for i := n - 1; i >= 0; i-- {
		s.leaves[i] = &region{first: i, last: i}
		outer = append(outer, s.leaves[i])
		if last[i] < i {
			continue
		}
		loop := &region{first: i, last: last[i], loop: true}
		outer = loop.adoptChildren(outer)
		s.loops[i] = loop
		entries += s.tableEntries(loop.first, loop.last)
	}
	root := &region{last: n - 1}
	root.adoptChildren(outer)
	if entries > maxGrowth*len(s.body) || root.depth(0) > maxDepth {
		return nil
	}
	return root
}

// backEdgeSources returns, for each segment, the last segment that jumps back to it, or -1.
func (s *relooper) backEdgeSources() []int {
	last := make([]int, len(s.loop.segments))
	for i := range last {
		last[i] = -1
	}
	for i, from := range s.loop.segments {
		for _, e := range from.rewrites {
			if to := s.loop.targetOf(e.value); e.kind == jumpSite && to <= i {
				last[to] = max(last[to], i)
			}
		}
	}
	return last
}

// adoptChildren makes children of the regions on top that begin before the end of g.
func (g *region) adoptChildren(outer []*region) []*region {
	for n := len(outer); n > 0 && outer[n-1].first <= g.last; n-- {
		child := outer[n-1]
		child.parent, outer = g, outer[:n-1]
		g.children, g.last = append(g.children, child), max(g.last, child.last)
	}
	return append(outer, g)
}

func (g *region) depth(above int) int {
	deepest := above
	for _, child := range g.children {
		if deepest <= maxDepth && child.loop {
			deepest = max(deepest, child.depth(above+1))
		}
	}
	return deepest
}

// tableEntries counts the table indexes that lead to some segments.
func (s *relooper) tableEntries(first, last int) int {
	from, to := s.entryRange(first, last)
	return to - from
}

// entryRange returns the table indexes that lead to some segments.
func (s *relooper) entryRange(first, last int) (from, to int) {
	return s.firstEntry(first), s.firstEntry(last + 1)
}

// firstEntry returns the first table index that leads to a segment or to a later one.
func (s *relooper) firstEntry(segment int) int {
	from, to := 0, len(s.loop.table)
	for from < to {
		if middle := (from + to) / 2; int(s.loop.table[middle]) < segment {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return from
}

func (s *relooper) openBlock(code ...byte) {
	s.out = append(s.out, code...)
	s.height++
}

func (s *relooper) closeBlock() {
	s.out = append(s.out, opEnd)
	s.height--
}

// emitRegion writes a region: a block around each child but the first, so that a jump to a child is
// a branch to the end of the block before it.
func (s *relooper) emitRegion(g *region) {
	if !s.budget.spend(1) {
		return // the result is thrown away
	}
	if g.loop {
		g.headLabel = s.height
		s.openBlock(opLoop, typeVoid)
	}
	for i := len(g.children) - 1; i > 0; i-- {
		g.children[i].label = s.height
		s.openBlock(opBlock, typeVoid)
	}
	s.emitEntryTable(g)
	for i, child := range g.children {
		if i > 0 {
			s.closeBlock()
		}
		if child.children == nil {
			s.emitSegment(child.first)
		} else {
			s.emitRegion(child)
		}
	}
	if g.loop {
		s.closeBlock()
	}
}

// emitEntryTable writes the br_table that leads to the resume point within a region that the
// program counter names. The labels of the children are open.
func (s *relooper) emitEntryTable(g *region) {
	from, to := s.entryRange(g.first, g.last)
	every, some := true, false
	for _, segment := range s.loop.table[from:to] {
		every = every && s.enterable[segment]
		some = some || s.enterable[segment] && int(segment) > g.first
	}
	if g.parent != nil && !some || !s.budget.spend(to-from) {
		return
	}
	s.emitLocal(opLocalGet, s.loop.pc)
	s.openBlock(opIf, typeVoid)
	if !every {
		s.openBlock(opBlock, typeVoid)
	}
	s.emitLocal(opLocalGet, s.loop.pc)
	if from > 0 {
		s.out = append(wasmbin.AppendSigned(append(s.out, opI32Const), int64(from)), opI32Sub)
	}
	s.emitLocal(opLocalSet, s.scratch)
	s.emitResumeReset(g, from, to)
	s.emitEntryBranches(g, from, to, every)
	if !every {
		s.closeBlock()
		s.out = append(s.out, opUnreachable)
	}
	s.closeBlock()
}

// emitEntryBranches writes the table itself. The label of the first child is the end of the if that
// is open, within which a block catches the segments that are no resume points.
func (s *relooper) emitEntryBranches(g *region, from, to int, every bool) {
	none, first := s.height-1, s.height-1
	if !every {
		first--
	}
	s.emitLocal(opLocalGet, s.scratch)
	s.emitBranchTable(g, from, to, func(child *region, segment int) int {
		switch {
		case !s.enterable[segment]:
			return none
		case child == g.children[0]:
			return first
		}
		return child.label
	})
}

// emitResumeReset sets the program counter to 0 unless it names a segment in the middle of a child,
// whose own table needs it.
func (s *relooper) emitResumeReset(g *region, from, to int) {
	within := false
	for _, segment := range s.loop.table[from:to] {
		within = within || s.enterable[segment] && int(segment) > s.childContaining(g, int(segment)).first
	}
	if within {
		s.openBlock(opBlock, typeVoid)
		s.openBlock(opBlock, typeVoid)
		s.emitLocal(opLocalGet, s.scratch)
		s.emitBranchTable(g, from, to, func(child *region, segment int) int {
			if s.enterable[segment] && segment > child.first {
				return s.height - 2
			}
			return s.height - 1
		})
		s.closeBlock()
	}
	s.out = append(s.out, opI32Const, 0)
	s.emitLocal(opLocalSet, s.loop.pc)
	if within {
		s.closeBlock()
	}
}

// emitBranchTable writes a br_table with a label for each index.
func (s *relooper) emitBranchTable(g *region, from, to int, label func(child *region, segment int) int) {
	s.out = wasmbin.AppendU32(append(s.out, opBrTable), uint32(to-from-1))
	if !s.budget.spend(to - from) {
		return
	}
	for _, segment := range s.loop.table[from:to] {
		s.emitLabel(label(s.childContaining(g, int(segment)), int(segment)))
	}
}

// childContaining returns the child of g that a segment of g is in.
func (s *relooper) childContaining(g *region, segment int) *region {
	child := s.leaves[segment]
	for child.parent != g {
		s.budget.spend(1)
		child = child.parent
	}
	return child
}

// emitLabel appends the label with so many labels outside of it.
func (s *relooper) emitLabel(outside int) {
	s.out = wasmbin.AppendU32(s.out, uint32(s.height-1-outside))
}

func (s *relooper) emitLocal(op byte, local uint32) {
	s.out = wasmbin.AppendU32(append(s.out, op), local)
}

// emitSegment writes a segment's code with its jumps as branches.
func (s *relooper) emitSegment(n int) {
	segment := s.loop.segments[n]
	from := segment.from
	s.budget.spend(segment.to - from)
	for _, e := range segment.rewrites {
		s.out = append(s.out, s.body[from:e.at]...)
		s.height += e.depth
		switch e.kind {
		case jumpSite:
			s.emitJump(n, e)
		case branchSite:
			s.out = append(s.out, e.op)
			s.out = wasmbin.AppendU32(s.out, uint32(s.height)+uint32(e.value))
		case localSite:
			s.emitLocal(e.op, s.scratch)
		}
		s.height -= e.depth
		from = e.end
	}
	s.out = append(s.out, s.body[from:segment.to]...)
}

// emitJump writes a jump out of a segment.
func (s *relooper) emitJump(from int, e siteRewrite) {
	to := s.loop.targetOf(e.value)
	last, duplicated := s.duplicated[e.at]
	switch label, local := s.labelInDuplicate(to); {
	case local:
		s.emitBranch(label)
	case s.duplicate != nil:
		s.emitJumpTo(s.duplicate.from, to, e.value)
	case duplicated:
		s.emitDuplicate(from, to, last)
	default:
		s.emitJumpTo(from, to, e.value)
	}
}

func (s *relooper) emitBranch(label int) {
	s.out = append(s.out, opBr)
	s.emitLabel(label)
}

// emitJumpTo writes a jump to a segment that a table index stands for. A jump into the middle of a
// loop sets the program counter and enters the loop by its table.
func (s *relooper) emitJumpTo(from, to int, index int32) {
	if to <= from {
		s.emitBranch(s.loops[to].headLabel)
		return
	}
	target := s.forwardTarget(from, to)
	if target.first < to {
		s.out = wasmbin.AppendSigned(append(s.out, opI32Const), int64(index))
		s.emitLocal(opLocalSet, s.loop.pc)
	}
	s.emitBranch(target.label)
}

// forwardTarget returns the region whose label a jump from one segment to a later one branches to.
func (s *relooper) forwardTarget(from, to int) *region {
	target := s.leaves[to]
	for !target.parent.contains(from) {
		s.budget.spend(1)
		target = target.parent
	}
	return target
}

// findEntries adds to the resume points the targets of jumps into the middle of a loop, unless tail
// duplication turns such a jump into one to the loop's beginning.
func (s *relooper) findEntries() {
	s.enterable, s.duplicated = s.loop.resumePoints(), map[int]int{}
	left := len(s.body)/2 + maxDuplicated
	for from, segment := range s.loop.segments {
		for _, e := range segment.rewrites {
			to := s.loop.targetOf(e.value)
			if e.kind != jumpSite || to <= from || s.forwardTarget(from, to).first == to {
				continue
			}
			if last, size, ok := s.duplicableTail(from, to); ok && size <= left {
				s.duplicated[e.at] = last
				left -= size
			} else {
				s.enterable[to] = true
			}
		}
	}
}
