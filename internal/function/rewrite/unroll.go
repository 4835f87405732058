package rewrite

import "slices"

// A loop of a few instructions pays more for the meter's check than for what it does. So
// the code of small loops is written several times, and one check does for all of them:
//
//	                     block
//	loop                   loop
//	  check                  check
//	  code                   block
//	end                        code, br 2
//	                         end
//	                         ...
//	                         code
//	                       end
//	                     end
//
// In all but the last one, a branch to the loop's head leads to the end of its block,
// where the next one begins. The engine looks at fewer bounds, too.

const (
	// maxUnrolled is how many bytes a loop's code may become.
	maxUnrolled = 512
	// maxTimes is how often a loop's code is written at most.
	maxTimes = 8
	// maxUnroll is how large a function may be.
	maxUnroll = 1 << 20
)

const opBrOnNull, opBrOnNonNull = 0xd5, 0xd6

// A round is a small loop.
type round struct {
	depth       int // of the blocks around it
	begin, code int // where it and its code begin
	end, after  int // where its code ends, and what follows
}

// unroll returns the body with the code of its small loops written several times.
func (f *finder) unroll(body []byte) []byte {
	if len(body) > maxUnroll {
		return body
	}
	rounds := f.rounds(body)
	if f.err != nil || len(rounds) == 0 {
		return body
	}
	out := make([]byte, 0, len(body)+len(rounds)*maxUnrolled)
	from := 0
	for _, r := range rounds {
		out = f.times(append(out, body[from:r.begin]...), body, r)
		from = r.after
	}
	return append(out, body[from:]...)
}

// rounds returns the small loops.
func (f *finder) rounds(body []byte) (found []round) {
	f.begin(body)
	var open []byte // the instructions that began the open blocks
	var last *round // the innermost loop, if it may be small
	for f.more() {
		i := f.next()
		switch i.op {
		case opBlock, opIf, opTryTable:
			open = append(open, i.op)
		case opLoop:
			last = &round{depth: len(open), begin: i.at, code: i.end}
			open = append(open, i.op)
		case opEnd:
			open = open[:max(len(open)-1, 0)]
			if last != nil && last.depth == len(open) {
				last.end, last.after = i.at, i.end
				if f.small(*last) {
					found = append(found, *last)
				}
				last = nil
			}
		}
		if isLarge(i.op, open) {
			last = nil
		}
	}
	return found
}

// isLarge says whether an instruction makes the loop around it one that is not
// unrolled: a call, unless it is in an if, where calls mostly panic, or a branch of a
// kind that is not followed here.
func isLarge(op byte, open []byte) bool {
	if kind := operandOf(op); kind == call || kind == callRef || kind == twoIndexes {
		return len(open) == 0 || open[len(open)-1] != opIf
	}
	return op == opTryTable || op == opBrOnNull || op == opBrOnNonNull
}

// small says whether a loop's code may be written at least twice, takes and leaves
// nothing on the stack, and is repeated at all.
func (f *finder) small(r round) bool {
	return 2*(r.end-r.code) <= maxUnrolled && f.b[r.begin+1] == voidType &&
		slices.ContainsFunc(f.checks, func(c check) bool { return c.at == r.code && c.needed })
}

// times writes a loop with its code several times.
func (f *finder) times(out, body []byte, r round) []byte {
	n := min(maxTimes, maxUnrolled/max(r.end-r.code, 1))
	out = append(out, opBlock, voidType, opLoop, voidType)
	for range n - 1 {
		out = append(out, opBlock, voidType)
		out = f.deeper(out, body, r, 2)
		out = append(out, opBr, 2, opEnd)
	}
	out = f.deeper(out, body, r, 1)
	return append(out, opEnd, opEnd)
}

// deeper writes a loop's code where there are more labels between the one of the loop
// and those around it.
func (f *finder) deeper(out, body []byte, r round, by uint32) []byte {
	f.b, f.off = body, r.code
	depth, from := uint32(0), r.code
	for f.off < r.end {
		i := f.next()
		switch i.op {
		case opBlock, opIf:
			depth++
		case opEnd:
			depth--
		case opBr, opBrIf, opBrTable:
			out = append(out, body[from:i.at+1]...)
			out = relabel(out, body[i.at+1:i.end], i.op, depth, by)
			from = i.end
		}
	}
	return append(out, body[from:r.end]...)
}

// relabel writes the labels of a branch. Those up to depth stay as they are.
func relabel(out, labels []byte, op byte, depth, by uint32) []byte {
	r := reader{b: labels}
	if op == opBrTable {
		out = appendU32(out, r.u32())
	}
	for r.more() {
		label := r.u32()
		if label > depth {
			label += by
		}
		out = appendU32(out, label)
	}
	return out
}
