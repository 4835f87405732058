package optimize

// stackFrame records the accesses of one body to its frame on Go's stack.
type stackFrame struct {
	allocated   bool  // the function has a frame on the stack
	live        bool  // and control is between its allocation and its release
	extent      int64 // how far accesses to the stack reach
	probePoints []int // instructions in front of which all of the frame is probed
	lastBlock   int   // the last basic block that accessed the stack
}

// noteAccess records an access to the frame in a basic block.
func (s *stackFrame) noteAccess(block, at int, extent int64) {
	if !s.live {
		return
	}
	if s.lastBlock != block {
		s.lastBlock, s.probePoints = block, append(s.probePoints, at)
	} else if last := len(s.probePoints) - 1; at < s.probePoints[last] {
		s.probePoints[last] = at
	}
	s.extent = max(s.extent, extent)
}

// insertProbes puts a bounds probe of the whole frame in front of the accesses of each basic block.
func (s *stackFrame) insertProbes(c *bodyCode) {
	for _, at := range s.probePoints {
		l := &c.instructions[at]
		l.before = append(l.before, boundsProbe(stackLocal, s.extent)...)
	}
}
