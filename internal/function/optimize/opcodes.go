package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// The instructions that the passes match and write, under short names: the code here reads like a
// listing.
const (
	opUnreachable  = wasmbin.OpUnreachable
	opNop          = wasmbin.OpNop
	opBlock        = wasmbin.OpBlock
	opLoop         = wasmbin.OpLoop
	opIf           = wasmbin.OpIf
	opElse         = wasmbin.OpElse
	opEnd          = wasmbin.OpEnd
	opBr           = wasmbin.OpBr
	opBrIf         = wasmbin.OpBrIf
	opBrTable      = wasmbin.OpBrTable
	opReturn       = wasmbin.OpReturn
	opCall         = wasmbin.OpCall
	opCallIndirect = wasmbin.OpCallIndirect
	opDrop         = wasmbin.OpDrop
	opSelect       = wasmbin.OpSelect
	opTryTable     = wasmbin.OpTryTable
	opLocalGet     = wasmbin.OpLocalGet
	opLocalSet     = wasmbin.OpLocalSet
	opLocalTee     = wasmbin.OpLocalTee
	opGlobalGet    = wasmbin.OpGlobalGet
	opGlobalSet    = wasmbin.OpGlobalSet
	opI32Load      = wasmbin.OpI32Load
	opI32Load8U    = wasmbin.OpI32Load8U
	opI64Load32U   = wasmbin.OpI64Load32U
	opI32Store     = wasmbin.OpI32Store
	opI64Store     = wasmbin.OpI64Store
	opI64Store32   = wasmbin.OpI64Store32
	opMemorySize   = wasmbin.OpMemorySize
	opMemoryGrow   = wasmbin.OpMemoryGrow
	opI32Const     = wasmbin.OpI32Const
	opI64Const     = wasmbin.OpI64Const
	opF32Const     = wasmbin.OpF32Const
	opF64Const     = wasmbin.OpF64Const
	opI32Eqz       = wasmbin.OpI32Eqz
	opI32Ne        = wasmbin.OpI32Ne
	opI32GeS       = wasmbin.OpI32GeS
	opI64Eqz       = wasmbin.OpI64Eqz
	opI64Ne        = wasmbin.OpI64Ne
	opI32Add       = wasmbin.OpI32Add
	opI32Sub       = wasmbin.OpI32Sub
	opI64Add       = wasmbin.OpI64Add
	opI64And       = wasmbin.OpI64And
	opI32WrapI64   = wasmbin.OpI32WrapI64
	opI64ExtendU   = wasmbin.OpI64ExtendU
	opI64Extend32S = wasmbin.OpI64Extend32S
	opBrOnNull     = wasmbin.OpBrOnNull
	opBrOnNonNull  = wasmbin.OpBrOnNonNull

	typeVoid = wasmbin.TypeVoid
)
