package rewrite

// conditions writes conditions as the engine likes them. A branch on a comparison is an
// if around a branch: to branch conditionally to where others branch, too, the engine
// puts what the comparison says into a register, and looks at that. And an if without
// an else gets an empty one: at the end of one that has none, the engine forgets which
// addresses it has looked at.
func (f *finder) conditions(body []byte) []byte {
	f.begin(body)
	out := append(make([]byte, 0, len(body)+len(body)/32), body[:f.off]...)
	var open []condition
	compared := false
	for f.more() {
		i := f.next()
		switch i.op {
		case opIf:
			open = append(open, condition{empty: body[i.at+1] == voidType, plain: body[i.at+1] == voidType})
		case opBlock, opLoop, opTryTable:
			open = append(open, condition{empty: body[i.at+1] == voidType})
		case opElse:
			if n := len(open); n > 0 {
				open[n-1].plain = false
			}
		case opEnd:
			if n := len(open); n > 0 {
				if open[n-1].plain {
					out = append(out, opElse)
				}
				open = open[:n-1]
			}
		case opBrIf:
			if label := int64(f.operandAt(i)); compared && label < int64(len(open)) && open[int64(len(open))-1-label].empty {
				out = appendU32(append(out, opIf, voidType, opBr), uint32(label)+1)
				out = append(out, opElse, opEnd)
				compared = false
				continue
			}
		}
		compared = i.op >= firstComparison && i.op <= lastComparison
		out = append(out, body[i.at:i.end]...)
	}
	if f.err != nil {
		return body
	}
	return out
}

// The comparisons: i32.eqz to f64.ge.
const firstComparison, lastComparison = 0x45, 0x66

// A condition is what is known of an open block.
type condition struct {
	empty bool // it takes and leaves nothing on the stack
	plain bool // it is an if without an else
}
