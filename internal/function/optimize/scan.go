package optimize

import (
	"fmt"
	"slices"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

const (
	// maxLocals is the limit of browsers (WebAssembly JavaScript interface, implementation limits);
	// a function's locals cost memory in the compiler, and a few bytes can declare billions of
	// them.
	maxLocals = 50_000
	// maxBody is the limit of browsers for the code of one function, in bytes.
	maxBody = 7_654_321
)

// undercountLimit is how many instructions at most are executed for each one that a meter check
// charges. Exact counting would need a check behind every branch.
const undercountLimit = 32

// hostCallCost is charged for a call of an imported function.
const hostCallCost = 1024

// meterCheck is an offset in a body where a check of the meter is inserted, with the cost of the
// code up to the next checks.
type meterCheck struct {
	offset    int
	bulk      bool  // the next instruction's last operand is a number of bytes
	lower     int64 // instructions from here to the first branch: certainly executed
	upper     int64 // instructions from here to the next checks, executed or not
	needed    bool
	enclosing int // the check of the code around it
}

// cost returns the charge for passing the check: the certain instructions, or undercountLimit's
// share of all of them, whichever is more.
func (c meterCheck) cost() int32 {
	return int32(min(max(c.lower, (c.upper+undercountLimit-1)/undercountLimit, 1), maxBody))
}

// openBlock is a structured instruction whose end is not reached.
type openBlock struct {
	enclosing int // the check of the code around it
	loopCheck int // its own check if it is a loop, or -1
}

// entryCost is the cost of a function that is entered without a check, outside of its loops: an
// upper and a lower bound. Callers are charged for it.
type entryCost struct{ upper, lower int64 }

// forbidden has the refused opcodes, with the reason.
var forbidden = map[uint32]string{
	0x06:                "try (the older form of exceptions; compile for try_table)",
	0x07:                "catch (the older form of exceptions; compile for try_table)",
	0x09:                "rethrow (the older form of exceptions; compile for try_table)",
	0x18:                "delegate (the older form of exceptions; compile for try_table)",
	0x19:                "catch_all (the older form of exceptions; compile for try_table)",
	wasmbin.OpTableSet:  "table.set: tables are not part of an image, so they can't change while a function runs",
	wasmbin.OpDataDrop:  "data.drop: dropped segments are not part of an image",
	wasmbin.OpTableInit: "table.init: tables are not part of an image, so they can't change while a function runs",
	wasmbin.OpElemDrop:  "elem.drop: dropped segments are not part of an image",
	wasmbin.OpTableCopy: "table.copy: tables are not part of an image, so they can't change while a function runs",
	wasmbin.OpTableGrow: "table.grow: tables are not part of an image, so they can't change while a function runs",
	wasmbin.OpTableFill: "table.fill: tables are not part of an image, so they can't change while a function runs",
}

// mayBeForbidden has the first bytes of the opcodes in forbidden.
var mayBeForbidden = func() (first [256]bool) {
	for op := range forbidden {
		if op > 0xff {
			op >>= 8
		}
		first[op] = true
	}
	return first
}()

// bodyScanner reads function bodies, one after the other, and finds where they need meter checks.
type bodyScanner struct {
	wasmbin.Reader
	m              *module
	entryCosts     []entryCost // of each function that is entered without a check; otherwise zero
	checks         []meterCheck
	open           []openBlock
	callees        []uint32
	current        int  // the check that the code here is charged to
	branchFree     bool // there was no branch since the last check
	loopAtEntry    bool // control flows from the entry to the first loop without a branch
	locals         wasmbin.Locals
	usesMemoryInit bool
	cost           compileCost
}

// begin starts to read a body, and reads the declarations of its local variables.
func (s *bodyScanner) begin(body []byte) {
	s.Reader = wasmbin.Reader{Data: body}
	s.checks, s.open, s.callees, s.current = s.checks[:0], s.open[:0], s.callees[:0], 0
	s.loopAtEntry, s.cost = false, compileCost{}
	if s.locals = s.Locals(); s.locals.Count > maxLocals {
		s.Failf("%d local variables: the limit is %d", s.locals.Count, maxLocals)
	}
	s.cost.locals = int64(s.locals.Count)
	s.openCheck()
}

// scan finds the places for checks in a body: its entry and its loops. Each instruction is charged
// to the innermost loop around it.
func (s *bodyScanner) scan(body []byte) error {
	if len(body) > maxBody {
		return fmt.Errorf("code of %d bytes: the limit is %d", len(body), maxBody)
	}
	s.begin(body)
	s.checks[0].needed = true
	for s.Err == nil {
		if _, end := s.next(); end {
			break
		}
	}
	if s.Err == nil && s.Left() > 0 {
		s.Failf("%d bytes after the end", s.Left())
	}
	s.mergeChecks()
	return s.Err
}

// mergeChecks drops superfluous checks: a loop without a back edge is charged with the code around
// it, and where control flows from the entry straight to a loop, the loop's check covers the entry.
func (s *bodyScanner) mergeChecks() {
	for i := len(s.checks) - 1; i > 0; i-- {
		if c := s.checks[i]; !c.needed {
			s.checks[c.enclosing].upper += c.upper
		}
	}
	if s.loopAtEntry && s.checks[1].needed && !s.checks[1].bulk {
		s.checks[0].needed = false
		s.checks[1].upper += s.checks[0].upper
	}
}

// needsChecks reports whether any check is needed.
func (s *bodyScanner) needsChecks() bool {
	return slices.ContainsFunc(s.checks, func(c meterCheck) bool { return c.needed })
}

// openCheck begins the code that is charged to a new check.
func (s *bodyScanner) openCheck() {
	s.loopAtEntry = s.loopAtEntry || len(s.checks) == 1 && s.checks[0].upper == 0
	s.checks = append(s.checks, meterCheck{offset: s.Off, enclosing: s.current})
	s.current = len(s.checks) - 1
	s.branchFree = true
}

// charge counts instructions.
func (s *bodyScanner) charge(n int64) {
	c := &s.checks[s.current]
	c.upper += n
	if s.branchFree {
		c.lower += n
	}
}

// markBranchTarget records a branch to an open block. A loop that is no branch target has no back
// edge and needs no check.
func (s *bodyScanner) markBranchTarget(label uint32) {
	s.branchFree = false
	if n := len(s.open); int64(label) < int64(n) {
		if loop := s.open[n-1-int(label)].loopCheck; loop >= 0 {
			s.checks[loop].needed = true
		}
	}
}

// next reads one instruction, and reports whether it ends the body.
func (s *bodyScanner) next() (i wasmbin.Instruction, end bool) {
	i = s.Instruction()
	if mayBeForbidden[i.Op] && s.Err == nil {
		if why := forbidden[i.Opcode()]; why != "" {
			s.Failf("%s", why)
		}
	}
	if i.Immediate.UsesMemory() && s.m.memories == 0 {
		s.Failf("instruction 0x%02x accesses a memory, and the module has none", i.Opcode())
	}
	if s.Err != nil {
		return i, false
	}
	s.cost.add(i)
	switch i.Immediate {
	case wasmbin.BlockImmediate, wasmbin.TryTableImmediate:
		s.open = append(s.open, openBlock{s.current, -1})
		if i.Op == opIf {
			s.charge(1)
			s.branchFree = false
		}
		i.EachLabel(s.Data, func(label uint32) { s.markBranchTarget(label + 1) }) // relative to the try_table's outside
	case wasmbin.LoopImmediate:
		enclosing := s.current
		s.openCheck()
		s.open = append(s.open, openBlock{enclosing, s.current})
	case wasmbin.EndMark:
		return i, s.closeBlock()
	case wasmbin.ElseMark:
	default:
		s.charge(1)
		s.control(i)
	}
	return i, false
}

// closeBlock ends a block, behind which control may come from several places. It reports whether
// the block was the body.
func (s *bodyScanner) closeBlock() (end bool) {
	n := len(s.open) - 1
	if n < 0 {
		return true
	}
	s.current = s.open[n].enclosing
	s.branchFree = false
	s.open = s.open[:n]
	return false
}

// control records calls, branches and bulk instructions, and checks indexes.
func (s *bodyScanner) control(i wasmbin.Instruction) {
	operand := wasmbin.Reader{Data: s.Data, Off: i.At + 1}
	switch i.Immediate {
	case wasmbin.NoImmediate:
		s.branchFree = s.branchFree && i.Op != opUnreachable && i.Op != opReturn
	case wasmbin.LabelImmediate:
		s.markBranchTarget(operand.U32())
	case wasmbin.LabelsImmediate:
		i.EachLabel(s.Data, s.markBranchTarget)
	case wasmbin.CallImmediate:
		if f := operand.Index("function", s.m.functions); operand.Err == nil {
			s.recordCall(f)
		}
	case wasmbin.CallRefImmediate, wasmbin.CallIndirectImmediate:
		s.noteIndirectCall(i.At)
	case wasmbin.FunctionImmediate:
		operand.Index("function", s.m.functions)
	case wasmbin.GlobalImmediate:
		operand.Index("global", s.m.globals)
	case wasmbin.DataMemoryImmediate, wasmbin.TwoMemoriesImmediate:
		s.recordBulk(i)
	case wasmbin.MemoryImmediate:
		if i.Opcode() == wasmbin.OpMemoryFill {
			s.recordBulk(i)
		}
	default:
	}
	if operand.Err != nil {
		s.Failf("%w", operand.Err)
	}
}

// recordBulk records an instruction whose time depends on its operand: memory.init, memory.copy or
// memory.fill.
func (s *bodyScanner) recordBulk(i wasmbin.Instruction) {
	s.usesMemoryInit = s.usesMemoryInit || i.Opcode() == wasmbin.OpMemoryInit
	s.checks = append(s.checks, meterCheck{offset: i.At, bulk: true, needed: true, enclosing: s.current})
}

// recordCall records a direct call. The cost of a function without a check is charged here.
func (s *bodyScanner) recordCall(f uint32) {
	s.callees = append(s.callees, f)
	if int(f) < s.m.imported {
		s.charge(hostCallCost)
		return
	}
	c := &s.checks[s.current]
	c.upper += s.entryCosts[f].upper
	if s.branchFree {
		c.lower += s.entryCosts[f].lower
	}
}

// noteIndirectCall puts a check in front of a call whose target is not known: it may be the caller
// itself, or a function that is entered without a check. A check is cheap there, since no register
// is live over the call.
func (s *bodyScanner) noteIndirectCall(at int) {
	s.checks = append(s.checks, meterCheck{offset: at, upper: maxUnchecked, needed: true, enclosing: s.current})
}
