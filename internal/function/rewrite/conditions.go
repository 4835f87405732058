package rewrite

// conditions writes conditions as the engine likes them: an if around nothing but a
// branch is a conditional branch, and an if without an else gets an empty one. At the
// end of an if that has none, the engine forgets which addresses it has looked at.
func (f *finder) conditions(body []byte) []byte {
	f.begin(body)
	out := append(make([]byte, 0, len(body)+len(body)/32), body[:f.off]...)
	var plain []bool // for each open block, whether it is an if without an else
	for f.more() {
		i := f.next()
		switch i.op {
		case opIf:
			if to, ok := f.branchAlone(i); ok {
				f.next()
				f.next()
				out = appendU32(append(out, opBrIf), to-1)
				continue
			}
			plain = append(plain, body[i.at+1] == voidType)
		case opBlock, opLoop, opTryTable:
			plain = append(plain, false)
		case opElse:
			if n := len(plain); n > 0 {
				plain[n-1] = false
			}
		case opEnd:
			if n := len(plain); n > 0 {
				if plain[n-1] {
					out = append(out, opElse)
				}
				plain = plain[:n-1]
			}
		}
		out = append(out, body[i.at:i.end]...)
	}
	if f.err != nil {
		return body
	}
	return out
}

// branchAlone says whether there is nothing but a branch out of it in an if, and where
// the branch goes.
func (f *finder) branchAlone(i instruction) (to uint32, ok bool) {
	r := reader{b: f.b, off: i.at + 1}
	if r.byte() != voidType || r.byte() != opBr {
		return 0, false
	}
	to = r.u32()
	return to, r.byte() == opEnd && r.err == nil && to > 0
}
