package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// The comparisons: i32.eqz to f64.ge.
const firstComparison, lastComparison = wasmbin.OpI32Eqz, wasmbin.OpF64Ge

// lowerConditionals writes conditional branches in the form that the engine's compiler fuses with
// comparisons (package documentation, "conditionals").
func (f *bodyOptimizer) lowerConditionals(body []byte) []byte {
	f.begin(body)
	c := conditionalLowering{out: append(make([]byte, 0, len(body)+len(body)/32), body[:f.Off]...)}
	for f.More() {
		i := f.next()
		if f.Err != nil {
			return body
		}
		c.write(i, body)
	}
	return c.out
}

// conditionalLowering writes a body.
type conditionalLowering struct {
	out      []byte
	open     []openConditional
	compared bool // the last instruction is a comparison
}

// openConditional is a block whose end is not reached.
type openConditional struct {
	void     bool // it takes and leaves nothing on the stack
	elseless bool // it is an if without an else, so far
}

func (c *conditionalLowering) write(i wasmbin.Instruction, body []byte) {
	switch n := len(c.open) - 1; i.Op {
	case opBlock, opLoop, opIf, opTryTable:
		void := body[i.At+1] == typeVoid
		c.open = append(c.open, openConditional{void: void, elseless: void && i.Op == opIf})
	case opElse:
		if n >= 0 {
			c.open[n].elseless = false
		}
	case opEnd:
		if n >= 0 && c.open[n].elseless {
			c.out = append(c.out, opElse)
		}
		c.open = c.open[:max(n, 0)]
	case opBrIf:
		if c.compared && c.lowerBranch(i, body) {
			return
		}
	}
	c.compared = i.Op >= firstComparison && i.Op <= lastComparison
	c.out = append(c.out, body[i.At:i.End]...)
}

// lowerBranch writes a conditional branch as an if around a branch, unless it carries values.
func (c *conditionalLowering) lowerBranch(i wasmbin.Instruction, body []byte) bool {
	r := wasmbin.Reader{Data: body, Off: i.At + 1}
	label := r.U32()
	if int64(label) >= int64(len(c.open)) || !c.open[len(c.open)-1-int(label)].void {
		return false
	}
	c.out = wasmbin.AppendU32(append(c.out, opIf, typeVoid, opBr), label+1)
	c.out = append(c.out, opElse, opEnd)
	c.compared = false
	return true
}
