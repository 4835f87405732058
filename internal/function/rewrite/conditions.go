package rewrite

// The comparisons: i32.eqz to f64.ge.
const firstComparison, lastComparison = 0x45, 0x66

// conditions writes conditions as the engine likes them. A branch on a comparison is an
// if around a branch: to branch conditionally to where others branch, too, the engine
// puts what the comparison says into a register, and looks at that. And an if without
// an else gets an empty one: at the end of one that has none, the engine forgets which
// addresses it has looked at.
func (f *finder) conditions(body []byte) []byte {
	f.begin(body)
	c := conditioner{out: append(make([]byte, 0, len(body)+len(body)/32), body[:f.off]...)}
	for f.more() {
		i := f.next()
		if f.err != nil {
			return body
		}
		c.write(i.op, body[i.at:i.end])
	}
	return c.out
}

// A conditioner writes a body.
type conditioner struct {
	out      []byte
	open     []condition
	compared bool // the last instruction is a comparison
}

// A condition is what is known of an open block.
type condition struct {
	empty bool // it takes and leaves nothing on the stack
	plain bool // it is an if without an else
}

func (c *conditioner) write(op byte, code []byte) {
	switch n := len(c.open) - 1; op {
	case opBlock, opLoop, opIf, opTryTable:
		empty := code[1] == voidType
		c.open = append(c.open, condition{empty: empty, plain: empty && op == opIf})
	case opElse:
		if n >= 0 {
			c.open[n].plain = false
		}
	case opEnd:
		if n >= 0 && c.open[n].plain {
			c.out = append(c.out, opElse)
		}
		c.open = c.open[:max(n, 0)]
	case opBrIf:
		if c.compared && c.branch(code) {
			return
		}
	}
	c.compared = op >= firstComparison && op <= lastComparison
	c.out = append(c.out, code...)
}

// branch writes a conditional branch as an if, unless it takes something along.
func (c *conditioner) branch(code []byte) bool {
	r := reader{b: code, off: 1}
	label := r.u32()
	if int64(label) >= int64(len(c.open)) || !c.open[len(c.open)-1-int(label)].empty {
		return false
	}
	c.out = appendU32(append(c.out, opIf, voidType, opBr), label+1)
	c.out = append(c.out, opElse, opEnd)
	c.compared = false
	return true
}
