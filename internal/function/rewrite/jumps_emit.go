package rewrite

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
)

// straighten makes the code shorter and its jumps direct.
func (m *module) straighten() {
	bodies, ok := m.bodies()
	if !ok {
		return
	}
	goMade := m.madeByGo()
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(bodies)) {
		working.Go(func() {
			f := finder{walker: walker{m: m, free: make([]toll, m.functions)}}
			for i := int(next.Add(1)) - 1; i < len(bodies); i = int(next.Add(1)) - 1 {
				bodies[i] = bytes.Clone(f.straighten(bodies[i], m.params[m.kinds[i]], goMade))
			}
		})
	}
	working.Wait()
	out := appendU32(make([]byte, 0, len(m.sections[secCode])*9/8), uint32(len(bodies)))
	for _, body := range bodies {
		out = append(appendU32(out, uint32(len(body))), body...)
	}
	m.sections[secCode] = out
}

// bodies are those of the module's own functions. It returns false where there are none,
// or not as many as it says: that is told later.
func (m *module) bodies() ([][]byte, bool) {
	r := &reader{b: m.sections[secCode]}
	if !r.more() {
		return nil, false
	}
	n := r.count(2)
	if n != len(m.kinds) {
		return nil, false
	}
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = r.bytes(r.count(1))
	}
	return bodies, r.err == nil && r.left() == 0
}

// straighten does it for one function. The result is valid until the next.
func (f *finder) straighten(body []byte, params uint32, goMade bool) []byte {
	body = f.polish(body)
	if goMade {
		body = f.frames(body, params)
	}
	if t, ok := f.find(body); ok {
		body = f.straight(t, params)
	}
	body = f.conditions(body)
	if goMade {
		body = f.pointers(body, params)
	}
	return f.unroll(body)
}

// straight returns the body with direct jumps, or as it was if that would be too large.
func (f *finder) straight(t *tangle, params uint32) []byte {
	s := straightener{t: t, body: f.b, spare: params + f.local.count}
	root := s.tree()
	if root == nil || f.local.count >= maxLocals {
		return f.b
	}
	s.enterable()
	s.out = appendU32(make([]byte, 0, len(f.b)+len(f.b)/8+64), uint32(f.local.groups+1))
	s.out = append(s.out, f.b[f.local.at:f.code()]...)
	s.out = append(s.out, 1, typeI32)
	s.out = append(s.out, f.b[f.code():t.from]...)
	s.node(root)
	return append(s.out, f.b[t.to:]...)
}

// code is where the declarations of local variables end.
func (f *finder) code() int { return f.checks[0].at }

// A region is segments that belong together: one, or those of a loop, or all.
type region struct {
	first, last int
	loop        bool
	parts       []*region
	up          *region
	label       int // how many labels are outside of the one that leads here
	head        int // how many are outside of the loop's
}

func (g *region) contains(segment int) bool { return g.first <= segment && segment <= g.last }

type straightener struct {
	t      *tangle
	body   []byte
	spare  uint32 // a variable that is free
	leaves []*region
	loops  map[int]*region // by their first segments
	out    []byte
	may    []bool      // which segments are entered, or jumped to by way of a table
	copies map[int]int // jumps, by their places, that are copies of the code up to a segment
	copy   *copied     // that is being written
	height int         // open labels
}

// tree joins the segments to loops, from the last to the first: a segment that is jumped
// back to begins a loop that reaches to where the farthest of these jumps comes from,
// and to the end of each loop that begins on the way.
func (s *straightener) tree() *region {
	n := len(s.t.spans)
	last := s.ends()
	s.leaves, s.loops = make([]*region, n), map[int]*region{}
	var outer []*region // of what was joined so far, the first one on top
	entries := 0
	for i := n - 1; i >= 0; i-- {
		s.leaves[i] = &region{first: i, last: i}
		outer = append(outer, s.leaves[i])
		if last[i] < i {
			continue
		}
		loop := &region{first: i, last: last[i], loop: true}
		outer = loop.take(outer)
		s.loops[i] = loop
		entries += s.numbers(loop.first, loop.last)
	}
	root := &region{last: n - 1}
	root.take(outer)
	if entries > maxGrowth*len(s.body) || root.depth(0) > maxDepth {
		return nil
	}
	return root
}

// ends returns for each segment where the farthest jump back to it comes from, or -1.
func (s *straightener) ends() []int {
	last := make([]int, len(s.t.spans))
	for i := range last {
		last[i] = -1
	}
	for i, span := range s.t.spans {
		for _, e := range span.edits {
			if to := s.t.segment(e.value); e.kind == editJump && to <= i {
				last[to] = max(last[to], i)
			}
		}
	}
	return last
}

// take makes parts of the regions on top that begin before the end of g.
func (g *region) take(outer []*region) []*region {
	for n := len(outer); n > 0 && outer[n-1].first <= g.last; n-- {
		part := outer[n-1]
		part.up, outer = g, outer[:n-1]
		g.parts, g.last = append(g.parts, part), max(g.last, part.last)
	}
	return append(outer, g)
}

func (g *region) depth(above int) int {
	deepest := above
	for _, part := range g.parts {
		if deepest <= maxDepth && part.loop {
			deepest = max(deepest, part.depth(above+1))
		}
	}
	return deepest
}

// numbers counts the numbers of pc that lead to some segments.
func (s *straightener) numbers(first, last int) int {
	from, to := s.span(first, last)
	return to - from
}

// span returns the numbers of pc that lead to some segments.
func (s *straightener) span(first, last int) (from, to int) {
	return s.search(first), s.search(last + 1)
}

// search returns the first number that leads to a segment or to one behind it.
func (s *straightener) search(segment int) int {
	from, to := 0, len(s.t.table)
	for from < to {
		if middle := (from + to) / 2; int(s.t.table[middle]) < segment {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return from
}

func (s *straightener) open(code ...byte) {
	s.out = append(s.out, code...)
	s.height++
}

func (s *straightener) close() {
	s.out = append(s.out, opEnd)
	s.height--
}

// node writes a region.
func (s *straightener) node(g *region) {
	if g.loop {
		g.head = s.height
		s.open(opLoop, voidType)
	}
	for i := len(g.parts) - 1; i > 0; i-- {
		g.parts[i].label = s.height
		s.open(opBlock, voidType)
	}
	s.dispatch(g)
	for i, part := range g.parts {
		if i > 0 {
			s.close()
		}
		if part.parts == nil {
			s.segment(part.first)
		} else {
			s.node(part)
		}
	}
	if g.loop {
		s.close()
	}
}

// dispatch writes what leads into the middle of a region: to the parts in it that pc
// names. Their labels are open.
func (s *straightener) dispatch(g *region) {
	from, to := s.span(g.first, g.last)
	every, some := true, false
	for _, segment := range s.t.table[from:to] {
		every = every && s.may[segment]
		some = some || s.may[segment] && int(segment) > g.first
	}
	if g.up != nil && !some {
		return
	}
	s.local(opGet, s.t.pc)
	s.open(opIf, voidType)
	if !every {
		s.open(opBlock, voidType)
	}
	s.local(opGet, s.t.pc)
	if from > 0 {
		s.out = append(appendI32(append(s.out, opI32Const), int32(from)), opI32Sub)
	}
	s.local(opSet, s.spare)
	s.arrive(g, from, to)
	s.choose(g, from, to, every)
	if !every {
		s.close()
		s.out = append(s.out, opUnreachable)
	}
	s.close()
}

// choose writes the table that leads to the parts. The label of the first one is the
// end of the if that is open, and within it a block for those that can't be entered.
func (s *straightener) choose(g *region, from, to int, every bool) {
	none, first := s.height-1, s.height-1
	if !every {
		first--
	}
	s.local(opGet, s.spare)
	s.branchTable(g, from, to, func(part *region, segment int) int {
		switch {
		case !s.may[segment]:
			return none
		case part == g.parts[0]:
			return first
		}
		return part.label
	})
}

// arrive sets pc to 0 unless it names a segment in the middle of a part.
func (s *straightener) arrive(g *region, from, to int) {
	within := false
	for _, segment := range s.t.table[from:to] {
		within = within || s.may[segment] && int(segment) > s.part(g, int(segment)).first
	}
	if within {
		s.open(opBlock, voidType)
		s.open(opBlock, voidType)
		s.local(opGet, s.spare)
		s.branchTable(g, from, to, func(part *region, segment int) int {
			if s.may[segment] && segment > part.first {
				return s.height - 2
			}
			return s.height - 1
		})
		s.close()
	}
	s.out = append(s.out, opI32Const, 0)
	s.local(opSet, s.t.pc)
	if within {
		s.close()
	}
}

// branchTable writes a table with a label for each number of pc.
func (s *straightener) branchTable(g *region, from, to int, label func(part *region, segment int) int) {
	s.out = appendU32(append(s.out, opBrTable), uint32(to-from-1))
	for _, segment := range s.t.table[from:to] {
		s.label(label(s.part(g, int(segment)), int(segment)))
	}
}

// part returns the part of g that a segment of g is in.
func (s *straightener) part(g *region, segment int) *region {
	part := s.leaves[segment]
	for part.up != g {
		part = part.up
	}
	return part
}

// label appends a label that has so many outside of it.
func (s *straightener) label(outside int) { s.out = appendU32(s.out, uint32(s.height-1-outside)) }

func (s *straightener) local(op byte, local uint32) { s.out = appendU32(append(s.out, op), local) }

// segment writes a segment's code with direct jumps.
func (s *straightener) segment(n int) {
	span := s.t.spans[n]
	from := span.from
	for _, e := range span.edits {
		s.out = append(s.out, s.body[from:e.at]...)
		s.height += e.depth
		switch e.kind {
		case editJump:
			s.jump(n, e)
		case editBranch:
			s.out = append(s.out, e.op)
			s.out = appendU32(s.out, uint32(s.height)+uint32(e.value))
		case editLocal:
			s.local(e.op, s.spare)
		}
		s.height -= e.depth
		from = e.end
	}
	s.out = append(s.out, s.body[from:span.to]...)
}

// jump writes a jump out of a segment.
func (s *straightener) jump(from int, e edit) {
	to := s.t.segment(e.value)
	last, copied := s.copies[e.at]
	switch label, local := s.inCopy(to); {
	case local:
		s.branch(label)
	case s.copy != nil:
		s.goTo(s.copy.from, to, e.value)
	case copied:
		s.copyOf(from, to, last)
	default:
		s.goTo(from, to, e.value)
	}
}

func (s *straightener) branch(label int) {
	s.out = append(s.out, opBr)
	s.label(label)
}

// goTo writes a jump to a segment that number stands for.
func (s *straightener) goTo(from, to int, number int32) {
	if to <= from {
		s.branch(s.loops[to].head)
		return
	}
	part := s.ahead(from, to)
	if part.first < to { // to its middle, by way of its table
		s.out = appendI32(append(s.out, opI32Const), number)
		s.local(opSet, s.t.pc)
	}
	s.branch(part.label)
}

// ahead returns the region whose label a jump from one segment to a later one goes to.
func (s *straightener) ahead(from, to int) *region {
	part := s.leaves[to]
	for !part.up.contains(from) {
		part = part.up
	}
	return part
}

// enterable adds to the segments that are entered those that are jumped to by way of
// a table.
func (s *straightener) enterable() {
	s.may, s.copies = s.t.enterable(), map[int]int{}
	room := len(s.body)/2 + maxCopy
	for from, span := range s.t.spans {
		for _, e := range span.edits {
			to := s.t.segment(e.value)
			if e.kind != editJump || to <= from || s.ahead(from, to).first == to {
				continue
			}
			if last, size, ok := s.chain(from, to); ok && size <= room {
				s.copies[e.at] = last
				room -= size
			} else {
				s.may[to] = true
			}
		}
	}
}
