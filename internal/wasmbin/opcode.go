package wasmbin

// The opcodes that this package names (section 5.4).
const (
	OpUnreachable  = 0x00
	OpNop          = 0x01
	OpBlock        = 0x02
	OpLoop         = 0x03
	OpIf           = 0x04
	OpElse         = 0x05
	OpThrow        = 0x08
	OpThrowRef     = 0x0a
	OpEnd          = 0x0b
	OpBr           = 0x0c
	OpBrIf         = 0x0d
	OpBrTable      = 0x0e
	OpReturn       = 0x0f
	OpCall         = 0x10
	OpCallIndirect = 0x11
	OpDrop         = 0x1a
	OpSelect       = 0x1b
	OpTryTable     = 0x1f
	OpLocalGet     = 0x20
	OpLocalSet     = 0x21
	OpLocalTee     = 0x22
	OpGlobalGet    = 0x23
	OpGlobalSet    = 0x24
	OpTableSet     = 0x26
	OpI32Load      = 0x28
	OpI32Load8U    = 0x2d
	OpI64Load32S   = 0x34
	OpI64Load32U   = 0x35
	OpI32Store     = 0x36
	OpI64Store     = 0x37
	OpI64Store32   = 0x3e
	OpMemorySize   = 0x3f
	OpMemoryGrow   = 0x40
	OpI32Const     = 0x41
	OpI64Const     = 0x42
	OpF32Const     = 0x43
	OpF64Const     = 0x44
	OpI32Eqz       = 0x45
	OpI32Eq        = 0x46
	OpI32Ne        = 0x47
	OpI32LtS       = 0x48
	OpI32LtU       = 0x49
	OpI32GtS       = 0x4a
	OpI32GtU       = 0x4b
	OpI32LeS       = 0x4c
	OpI32LeU       = 0x4d
	OpI32GeS       = 0x4e
	OpI32GeU       = 0x4f
	OpI64Eqz       = 0x50
	OpI64Eq        = 0x51
	OpI64Ne        = 0x52
	OpI64LtS       = 0x53
	OpI64LtU       = 0x54
	OpI64GtS       = 0x55
	OpI64GtU       = 0x56
	OpI64LeS       = 0x57
	OpI64LeU       = 0x58
	OpI64GeS       = 0x59
	OpI64GeU       = 0x5a
	OpF64Ge        = 0x66
	OpI32Add       = 0x6a
	OpI32Sub       = 0x6b
	OpI32Mul       = 0x6c
	OpI32And       = 0x71
	OpI32ShrU      = 0x76
	OpI64Add       = 0x7c
	OpI64Sub       = 0x7d
	OpI64Mul       = 0x7e
	OpI64And       = 0x83
	OpI32WrapI64   = 0xa7
	OpI64ExtendU   = 0xad
	OpI64Extend32S = 0xc4
	OpRefNull      = 0xd0
	OpRefFunc      = 0xd2
	OpBrOnNull     = 0xd5
	OpBrOnNonNull  = 0xd6

	// OpPrefixMisc is the prefix of the opcodes of saturating conversions, bulk memory and tables.
	OpPrefixMisc = 0xfc
	// OpPrefixVector is the prefix of the opcodes of 128-bit vectors.
	OpPrefixVector = 0xfd
	// OpPrefixAtomic is the prefix of the opcodes of threads.
	OpPrefixAtomic = 0xfe

	// SubV128Const is the opcode of v128.const after OpPrefixVector.
	SubV128Const = 12

	// OpMemoryInit, ... are the values of Instruction.Opcode for opcodes after OpPrefixMisc.
	OpMemoryInit = 0xfc08
	OpDataDrop   = 0xfc09
	OpMemoryCopy = 0xfc0a
	OpMemoryFill = 0xfc0b
	OpTableInit  = 0xfc0c
	OpElemDrop   = 0xfc0d
	OpTableCopy  = 0xfc0e
	OpTableGrow  = 0xfc0f
	OpTableSize  = 0xfc10
	OpTableFill  = 0xfc11
)

// Immediate is the kind of the immediates after an opcode.
type Immediate uint8

// The immediates.
const (
	NoImmediate           Immediate = iota
	UnknownImmediate                // the opcode belongs to no feature known to this package
	BlockImmediate                  // a block type: a block or an if begins
	LoopImmediate                   // a block type: a loop begins
	TryTableImmediate               // a block type and a vector of catch clauses
	ElseMark                        // nothing: the other branch of an if begins
	EndMark                         // nothing: a block or the expression ends
	LabelImmediate                  // a label
	LabelsImmediate                 // a vector of labels and one more
	CallImmediate                   // the index of the called function
	CallRefImmediate                // the index of the called function's type
	CallIndirectImmediate           // the type of the called function, and the table
	IndexImmediate                  // an index
	TwoIndexesImmediate             // two indexes
	FunctionImmediate               // the index of a function
	GlobalImmediate                 // the index of a global
	TypesImmediate                  // a vector of value types
	HeapTypeImmediate               // a heap type
	MemArgImmediate                 // alignment and offset
	MemArgLaneImmediate             // alignment, offset and a lane
	LaneImmediate                   // one byte
	MemoryImmediate                 // a memory, which must be 0
	TwoMemoriesImmediate            // two memories
	DataMemoryImmediate             // the index of a data segment and a memory
	I32Immediate                    // a signed number of 32 bits
	I64Immediate                    // a signed number of 64 bits
	F32Immediate                    // a float of 4 bytes
	F64Immediate                    // a float of 8 bytes
	V128Immediate                   // a vector, or sixteen lanes
	prefix                          // the rest of the opcode
)

// UsesMemory reports whether an instruction with the immediate accesses a memory.
func (i Immediate) UsesMemory() bool {
	switch i {
	case MemArgImmediate, MemArgLaneImmediate, MemoryImmediate, TwoMemoriesImmediate, DataMemoryImmediate:
		return true
	default:
		return false
	}
}

func immediateOf(op byte) Immediate {
	switch {
	case op == OpEnd:
		return EndMark
	case op >= OpI32Eqz && op <= OpI64Extend32S: // numeric
		return NoImmediate
	case op >= OpI32Load && op <= OpI64Store32:
		return MemArgImmediate
	case op >= OpLocalGet && op <= OpLocalTee:
		return IndexImmediate
	case op == OpGlobalGet, op == OpGlobalSet:
		return GlobalImmediate
	}
	return rareImmediateOf(op)
}

func rareImmediateOf(op byte) Immediate {
	switch op {
	case OpUnreachable, OpNop, OpThrowRef, OpReturn, OpDrop, OpSelect, 0xd1, 0xd3, 0xd4: // ref.is_null, ref.eq, ref.as_non_null
		return NoImmediate
	case 0x07, 0x09, 0x18: // catch, rethrow, delegate of the older exceptions
		return IndexImmediate
	case 0x19: // catch_all of the older exceptions
		return NoImmediate
	case OpBlock, OpIf, 0x06: // try of the older exceptions
		return BlockImmediate
	case OpLoop:
		return LoopImmediate
	case OpElse:
		return ElseMark
	case OpThrow, 0x25, OpTableSet: // table.get
		return IndexImmediate
	case OpBr, OpBrIf, OpBrOnNull, OpBrOnNonNull:
		return LabelImmediate
	case 0x14, 0x15: // call_ref, return_call_ref
		return CallRefImmediate
	case OpBrTable:
		return LabelsImmediate
	case OpCall, 0x12: // return_call
		return CallImmediate
	case OpRefFunc:
		return FunctionImmediate
	case OpCallIndirect, 0x13: // return_call_indirect
		return CallIndirectImmediate
	case 0x1c: // select with types
		return TypesImmediate
	case OpTryTable:
		return TryTableImmediate
	case OpMemorySize, OpMemoryGrow:
		return MemoryImmediate
	case OpI32Const:
		return I32Immediate
	case OpI64Const:
		return I64Immediate
	case OpF32Const:
		return F32Immediate
	case OpF64Const:
		return F64Immediate
	case OpRefNull:
		return HeapTypeImmediate
	case OpPrefixMisc, OpPrefixVector, OpPrefixAtomic:
		return prefix
	}
	return UnknownImmediate
}

func prefixedImmediate(op byte, sub uint32) Immediate {
	switch {
	case sub > 0xff:
		return UnknownImmediate
	case op == OpPrefixMisc:
		return miscImmediate(sub)
	case op == OpPrefixVector:
		return vectorImmediate(sub)
	}
	return atomicImmediate(sub)
}

func miscImmediate(sub uint32) Immediate {
	switch uint32(OpPrefixMisc)<<8 | sub {
	case OpMemoryInit:
		return DataMemoryImmediate
	case OpMemoryCopy:
		return TwoMemoriesImmediate
	case OpMemoryFill:
		return MemoryImmediate
	case OpTableInit, OpTableCopy:
		return TwoIndexesImmediate
	case OpDataDrop, OpElemDrop, OpTableGrow, OpTableSize, OpTableFill:
		return IndexImmediate
	}
	if sub <= 7 { // saturating conversions
		return NoImmediate
	}
	return UnknownImmediate
}

// vectorImmediate returns the immediate of a vector instruction of the core specification 2.0
// (section 5.4.8).
func vectorImmediate(sub uint32) Immediate {
	switch {
	case sub <= 11, sub == 92, sub == 93:
		return MemArgImmediate
	case sub == 12, sub == 13:
		return V128Immediate
	case sub >= 21 && sub <= 34:
		return LaneImmediate
	case sub >= 84 && sub <= 91:
		return MemArgLaneImmediate
	}
	switch sub {
	case 154, 162, 165, 166, 175, 176, 178, 179, 180, 187, 194, 197, 198, 207, 208, 210, 211, 212, 226, 238:
		return UnknownImmediate
	}
	return NoImmediate
}

func atomicImmediate(sub uint32) Immediate {
	switch {
	case sub == 3: // atomic.fence
		return MemoryImmediate
	case sub <= 2, sub >= 0x10 && sub <= 0x4e:
		return MemArgImmediate
	}
	return UnknownImmediate
}
