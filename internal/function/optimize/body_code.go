package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// bodyCode is the instructions of one body with their replacements.
type bodyCode struct {
	instructions []instruction
	budget       *workBudget
}

// instruction is an instruction of a body, with its replacement.
type instruction struct {
	wasmbin.Instruction
	operand   int64  // its number: of a constant, of a local, the offset of an access
	before    []byte // code that is inserted in front of it
	code      []byte // its replacement, if any
	after     []byte // code that is inserted behind it
	deleted   bool
	frameSize int64 // by how many bytes it enlarges the stack frame
}

// matches reports whether the instructions from at on have these opcodes.
func (c *bodyCode) matches(at int, ops ...byte) bool {
	if at+len(ops) > len(c.instructions) {
		return false
	}
	for i, op := range ops {
		if c.instructions[at+i].Op != op {
			return false
		}
	}
	return true
}

// replace writes code in place of an instruction.
func (c *bodyCode) replace(at int, code ...byte) {
	c.instructions[at].code, c.instructions[at].deleted = code, false
}

// delete removes the instructions in [from, to) and their replacements.
func (c *bodyCode) delete(from, to int) {
	c.budget.spend(to - from)
	for i := from; i < to; i++ {
		c.instructions[i].deleted, c.instructions[i].code = true, nil
	}
}
