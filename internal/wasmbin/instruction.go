package wasmbin

import "fmt"

// Instruction is one instruction of an expression.
type Instruction struct {
	// At is the offset of the opcode, and End the offset after the immediates.
	At, End int
	// Op is the first byte, and Sub the number after a prefix (OpPrefixMisc, ...).
	Op  byte
	Sub uint32
	// Immediate is the kind of the immediates.
	Immediate Immediate
}

// Opcode returns Op or, after a prefix, the prefix times 256 plus Sub, which is below 256 in every
// known opcode.
func (i Instruction) Opcode() uint32 {
	if !i.prefixed() {
		return uint32(i.Op)
	}
	return uint32(i.Op)<<8 | i.Sub
}

// Instruction reads one instruction with its immediates. An unknown opcode is an error.
func (r *Reader) Instruction() Instruction {
	i := Instruction{At: r.Off}
	i.Op = r.Byte()
	if r.Err != nil {
		return i
	}
	i.Immediate = immediateOf(i.Op)
	if i.Immediate == prefix {
		i.Sub = r.U32()
		i.Immediate = prefixedImmediate(i.Op, i.Sub)
	}
	r.immediates(i)
	i.End = r.Off
	return i
}

func (r *Reader) immediates(i Instruction) {
	switch i.Immediate {
	case NoImmediate, ElseMark, EndMark:
	case LabelImmediate, IndexImmediate, CallImmediate, CallRefImmediate, FunctionImmediate, GlobalImmediate:
		r.U32()
	case CallIndirectImmediate:
		r.U32()
		r.U32()
	case I32Immediate:
		r.Signed(32)
	case I64Immediate:
		r.Signed(64)
	case MemArgImmediate:
		r.memArg()
	case BlockImmediate, LoopImmediate:
		r.blockType()
	default:
		r.rareImmediates(i)
	}
}

func (r *Reader) rareImmediates(i Instruction) {
	switch i.Immediate {
	case F32Immediate:
		r.Bytes(4)
	case F64Immediate:
		r.Bytes(8)
	case V128Immediate:
		r.Bytes(16)
	case LaneImmediate:
		r.Byte()
	case MemArgLaneImmediate:
		r.memArg()
		r.Byte()
	case MemoryImmediate:
		r.memoryIndex()
	case TwoMemoriesImmediate:
		r.memoryIndex()
		r.memoryIndex()
	case TwoIndexesImmediate:
		r.U32()
		r.U32()
	case DataMemoryImmediate:
		r.U32()
		r.memoryIndex()
	case LabelsImmediate:
		for range r.Count(1) + 1 {
			r.U32()
		}
	case TypesImmediate:
		r.ValueTypes()
	case HeapTypeImmediate:
		r.Signed(33)
	case TryTableImmediate:
		r.blockType()
		r.catchClauses(func(uint32) {})
	default:
		r.Failf("opcode %s is of no feature that is known here", i.Name())
	}
}

func (i Instruction) prefixed() bool { return i.Op >= OpPrefixMisc && i.Op <= OpPrefixAtomic }

// Name returns the opcode in hexadecimal, for messages.
func (i Instruction) Name() string {
	if !i.prefixed() {
		return fmt.Sprintf("0x%02x", i.Op)
	}
	return fmt.Sprintf("0x%02x%02x", i.Op, i.Sub)
}

// blockType reads a block type: void, a value type, or the index of a function type.
func (r *Reader) blockType() {
	switch r.Signed(33) {
	case TypeRef - 0x80, TypeRefNull - 0x80:
		r.Signed(33)
	}
}

// catchClauses reads the clauses of a try_table and calls f for each label, which is relative to
// the block around the try_table.
func (r *Reader) catchClauses(f func(label uint32)) {
	for range r.Count(2) {
		switch kind := r.Byte(); kind {
		case 0, 1: // catch, catch_ref
			r.U32()
		case 2, 3: // catch_all, catch_all_ref
		default:
			r.Failf("catch clause of kind %d", kind)
		}
		f(r.U32())
	}
}

// EachLabel calls f for every label to which an instruction of data may branch. Labels are relative
// to the place of the instruction.
func (i Instruction) EachLabel(data []byte, f func(label uint32)) {
	r := Reader{Data: data, Off: i.At + 1}
	switch i.Immediate {
	case LabelImmediate:
		f(r.U32())
	case LabelsImmediate:
		for range r.Count(1) + 1 {
			f(r.U32())
		}
	case TryTableImmediate:
		r.blockType()
		r.catchClauses(f)
	default:
	}
}

func (r *Reader) memArg() {
	if align := r.U32(); align >= 64 {
		r.Failf("several memories: a module has one")
	}
	r.U32()
}

func (r *Reader) memoryIndex() {
	if r.Byte() != 0 {
		r.Failf("several memories: a module has one")
	}
}
