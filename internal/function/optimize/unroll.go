package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

const (
	// maxUnrolled bounds the size of an unrolled loop's code, in bytes.
	maxUnrolled = 512
	// maxCopies bounds how often a loop's code is written.
	maxCopies = 8
	// maxUnrollBody is the size of the largest body whose loops are unrolled, in bytes.
	maxUnrollBody = 1 << 20
)

// smallLoop is a loop that may be unrolled.
type smallLoop struct {
	depth       int // of the blocks around it
	check       int // its meter check
	begin, code int // where it and its code begin
	end, after  int // where its code ends, and the offset behind the loop
}

// copies returns how often the loop's code is written.
func (l smallLoop) copies() int { return min(maxCopies, maxUnrolled/max(l.end-l.code, 1)) }

// unrollLoops returns the body with its small loops unrolled (package documentation, "unroll").
func (f *bodyOptimizer) unrollLoops(body []byte) []byte {
	if len(body) > maxUnrollBody {
		return body
	}
	loops := f.findSmallLoops(body)
	growth := 0
	for _, l := range loops {
		growth += l.copies() * (l.end - l.code)
	}
	if f.Err != nil || len(loops) == 0 || growth > len(body)+growthAllowance || !f.spend(growth) {
		return body
	}
	out := make([]byte, 0, len(body)+2*growth)
	from := 0
	for _, l := range loops {
		out = f.appendUnrolled(append(out, body[from:l.begin]...), body, l)
		from = l.after
	}
	return append(out, body[from:]...)
}

// findSmallLoops returns the innermost loops that may be unrolled.
func (f *bodyOptimizer) findSmallLoops(body []byte) (found []smallLoop) {
	f.begin(body)
	var open []byte     // the instructions that began the open blocks
	var last *smallLoop // the innermost loop, if it may be small
	for f.More() {
		i := f.next()
		switch i.Op {
		case opBlock, opIf, opTryTable:
			open = append(open, i.Op)
		case opLoop:
			last = &smallLoop{depth: len(open), check: f.current, begin: i.At, code: i.End}
			open = append(open, i.Op)
		case opEnd:
			open = open[:max(len(open)-1, 0)]
			if last != nil && last.depth == len(open) {
				last.end, last.after = i.At, i.End
				if f.isUnrollable(*last) {
					found = append(found, *last)
				}
				last = nil
			}
		}
		if preventsUnrolling(i, open) {
			last = nil
		}
	}
	return found
}

// preventsUnrolling reports whether an instruction keeps the loop around it from being unrolled: a
// call, unless it is in an if, where calls mostly panic, or a branch of a kind that appendIteration
// does not rewrite.
func preventsUnrolling(i wasmbin.Instruction, open []byte) bool {
	switch i.Immediate {
	case wasmbin.CallImmediate, wasmbin.CallRefImmediate, wasmbin.CallIndirectImmediate:
		return len(open) == 0 || open[len(open)-1] != opIf
	default:
		return i.Op == opTryTable || i.Op == opBrOnNull || i.Op == opBrOnNonNull
	}
}

// isUnrollable reports whether a loop fits twice into maxUnrolled bytes, takes and leaves nothing
// on the stack, and has a back edge.
func (f *bodyOptimizer) isUnrollable(l smallLoop) bool {
	return 2*(l.end-l.code) <= maxUnrolled && f.Data[l.begin+1] == typeVoid && f.checks[l.check].needed
}

// appendUnrolled writes a loop with its code several times.
func (f *bodyOptimizer) appendUnrolled(out, body []byte, l smallLoop) []byte {
	n := l.copies()
	out = append(out, opBlock, typeVoid, opLoop, typeVoid)
	for range n - 1 {
		out = append(out, opBlock, typeVoid)
		out = f.appendIteration(out, body, l, 2)
		out = append(out, opBr, 2, opEnd)
	}
	out = f.appendIteration(out, body, l, 1)
	return append(out, opEnd, opEnd)
}

// appendIteration writes a loop's code once, with more labels between the loop's and those around
// it.
func (f *bodyOptimizer) appendIteration(out, body []byte, l smallLoop, more uint32) []byte {
	f.Data, f.Off = body, l.code
	depth, from := uint32(0), l.code
	for f.Off < l.end && f.Err == nil {
		i := f.Instruction()
		switch i.Op {
		case opBlock, opIf:
			depth++
		case opEnd:
			depth--
		case opBr, opBrIf, opBrTable:
			out = append(out, body[from:i.At+1]...)
			out = appendRelabelled(out, body[i.At+1:i.End], i.Op, depth, more)
			from = i.End
		}
	}
	return append(out, body[from:l.end]...)
}

// appendRelabelled writes the labels of a branch. Labels up to depth stay as they are.
func appendRelabelled(out, labels []byte, op byte, depth, more uint32) []byte {
	r := wasmbin.Reader{Data: labels}
	if op == opBrTable {
		out = wasmbin.AppendU32(out, r.U32())
	}
	for r.More() {
		label := r.U32()
		if label > depth {
			label += more
		}
		out = wasmbin.AppendU32(out, label)
	}
	return out
}
