package rewrite

// An operand says what follows an opcode.
type operand uint8

const (
	none         operand = iota
	unknown              // no opcode of a feature that this package knows
	refused              // an opcode that is known and can't be handled
	blockStart           // block type
	loopStart            // block type; a loop begins
	elseMark             // the other branch of an if
	endMark              // the end of a block
	index                // one index
	label                // a label to branch to
	call                 // an index of a function that is called
	callRef              // an index of the type of a function that is called
	twoIndexes           // a type and a table: a function that is called
	function             // an index of a function
	global               // an index of a global
	labels               // a vector of labels and one more
	types                // a vector of value types
	catches              // block type and a vector of catch clauses
	heapType             // a heap type
	memArg               // alignment and offset
	memArgLane           // alignment, offset and a lane
	lane                 // one byte
	zero                 // one byte, the memory, which must be 0
	twoZeros             // two memories
	dataAndZero          // an index of a data segment and a memory
	number32             // a signed number of 32 bits
	number64             // a signed number of 64 bits
	fourBytes            // a 32 bit float
	eightBytes           // a 64 bit float
	sixteenBytes         // a vector, or sixteen lanes
	prefixMisc           // an opcode of the 0xfc page
	prefixVector         // an opcode of the 0xfd page
	prefixAtomic         // an opcode of the 0xfe page
)

// operandOf says what follows an opcode of one byte. The sources are the core
// specification 2.0, section 5.4, and the proposals for tail calls, exceptions
// and typed function references.
func operandOf(op byte) operand {
	switch {
	case op == 0x0b:
		return endMark
	case op >= 0x45 && op <= 0xc4: // numeric
		return none
	case op >= 0x28 && op <= 0x3e: // loads and stores
		return memArg
	case op >= 0x20 && op <= 0x22: // locals
		return index
	case op == 0x23, op == 0x24:
		return global
	}
	return rareOperand(op)
}

func rareOperand(op byte) operand {
	switch op {
	case 0x00, 0x01, 0x0a, 0x0f, 0x1a, 0x1b, 0xd1, 0xd3, 0xd4: // unreachable, nop, throw_ref, return, drop, select, ref.is_null, ref.eq, ref.as_non_null
		return none
	case 0x02, 0x04: // block, if
		return blockStart
	case 0x03:
		return loopStart
	case 0x05:
		return elseMark
	case 0x08, 0x25: // throw, table.get
		return index
	case 0x0c, 0x0d, 0xd5, 0xd6: // br, br_if, br_on_null, br_on_non_null
		return label
	case 0x14, 0x15: // call_ref, return_call_ref
		return callRef
	case 0x0e:
		return labels
	case 0x10, 0x12: // call, return_call
		return call
	case 0xd2: // ref.func
		return function
	case 0x11, 0x13: // call_indirect, return_call_indirect
		return twoIndexes
	case 0x1c:
		return types
	case 0x1f:
		return catches
	case 0x3f, 0x40:
		return zero
	case 0x41:
		return number32
	case 0x42:
		return number64
	case 0x43:
		return fourBytes
	case 0x44:
		return eightBytes
	case 0xd0:
		return heapType
	case 0xfc:
		return prefixMisc
	case 0xfd:
		return prefixVector
	case 0xfe:
		return prefixAtomic
	case 0x06, 0x07, 0x09, 0x18, 0x19, 0x26:
		return refused
	}
	return unknown
}

func miscOperand(op uint32) operand {
	switch op {
	case 0, 1, 2, 3, 4, 5, 6, 7: // saturating conversions
		return none
	case 8:
		return dataAndZero
	case 10:
		return twoZeros
	case 11:
		return zero
	case 16:
		return index
	case 9, 12, 13, 14, 15, 17:
		return refused
	}
	return unknown
}

// vectorOperand is for the fixed-width vectors of the core specification 2.0.
func vectorOperand(op uint32) operand {
	switch {
	case op <= 11, op == 92, op == 93:
		return memArg
	case op == 12, op == 13:
		return sixteenBytes
	case op >= 21 && op <= 34:
		return lane
	case op >= 84 && op <= 91:
		return memArgLane
	case op == 154, op == 162, op == 165, op == 166, op == 175, op == 176, op == 178, op == 179, op == 180, op == 187,
		op == 194, op == 197, op == 198, op == 207, op == 208, op == 210, op == 211, op == 212, op == 226, op == 238:
		return unknown
	case op <= 255:
		return none
	}
	return unknown
}

func atomicOperand(op uint32) operand {
	switch {
	case op == 3:
		return zero
	case op <= 2, op >= 0x10 && op <= 0x4e:
		return memArg
	}
	return unknown
}

// why says why an opcode is refused.
var why = map[uint32]string{
	0x06:   "try (the older form of exceptions; compile for try_table)",
	0x07:   "catch (the older form of exceptions; compile for try_table)",
	0x09:   "rethrow (the older form of exceptions; compile for try_table)",
	0x18:   "delegate (the older form of exceptions; compile for try_table)",
	0x19:   "catch_all (the older form of exceptions; compile for try_table)",
	0x26:   "table.set: tables are not part of an image, so they can't change while a function runs",
	0xfc09: "data.drop: dropped segments are not part of an image",
	0xfc0c: "table.init: tables are not part of an image, so they can't change while a function runs",
	0xfc0d: "elem.drop: dropped segments are not part of an image",
	0xfc0e: "table.copy: tables are not part of an image, so they can't change while a function runs",
	0xfc0f: "table.grow: tables are not part of an image, so they can't change while a function runs",
	0xfc11: "table.fill: tables are not part of an image, so they can't change while a function runs",
}
