// Package assemble encodes small WebAssembly modules for tests, section by section.
package assemble

import (
	"slices"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// The value types.
const (
	I32    = wasmbin.TypeI32
	I64    = wasmbin.TypeI64
	F32    = wasmbin.TypeF32
	F64    = wasmbin.TypeF64
	V128   = wasmbin.TypeV128
	Func   = wasmbin.TypeFunc
	Extern = wasmbin.TypeExtern
)

// File joins sections into a module.
func File(sections ...[]byte) []byte {
	return slices.Concat([]byte(wasmbin.Preamble), slices.Concat(sections...))
}

// Section encodes a section with a vector of elements.
func Section(id byte, elements ...[]byte) []byte {
	return Raw(id, slices.Concat(U32(uint32(len(elements))), slices.Concat(elements...)))
}

// Raw encodes a section with arbitrary contents.
func Raw(id byte, body []byte) []byte {
	return wasmbin.AppendSection(nil, id, body)
}

// Types encodes the type section.
func Types(types ...[]byte) []byte { return Section(1, types...) }

// Type encodes a function type.
func Type(params, results []byte) []byte {
	return slices.Concat([]byte{0x60}, U32(uint32(len(params))), params, U32(uint32(len(results))), results)
}

// Imports encodes the import section.
func Imports(imports ...[]byte) []byte { return Section(2, imports...) }

// Import encodes an import of a kind with its description.
func Import(module, name string, kind byte, description ...byte) []byte {
	return slices.Concat(Name(module), Name(name), []byte{kind}, description)
}

// Functions encodes the function section: the type index of each function.
func Functions(types ...byte) []byte {
	return Raw(3, slices.Concat(U32(uint32(len(types))), types))
}

// Table encodes the table section with one table of functions.
func Table(least uint32) []byte { return Section(4, slices.Concat([]byte{Func, 0}, U32(least))) }

// Memory encodes the memory section with one memory, in pages; most 0 means no maximum.
func Memory(least, most uint32) []byte {
	if most == 0 {
		return Section(5, slices.Concat([]byte{0}, U32(least)))
	}
	return Section(5, slices.Concat([]byte{1}, U32(least), U32(most)))
}

// Globals encodes the global section.
func Globals(globals ...[]byte) []byte { return Section(6, globals...) }

// Variable encodes a global with its initialisation expression.
func Variable(kind byte, mutable bool, value ...byte) []byte {
	m := byte(0)
	if mutable {
		m = 1
	}
	return slices.Concat([]byte{kind, m}, value, []byte{0x0b})
}

// Exports encodes the export section.
func Exports(exports ...[]byte) []byte { return Section(7, exports...) }

// Export encodes an export of a function (0), table (1), memory (2) or global (3).
func Export(name string, kind byte, index uint32) []byte {
	return slices.Concat(Name(name), []byte{kind}, U32(index))
}

// Start encodes the start section.
func Start(index uint32) []byte { return Raw(8, U32(index)) }

// Elements encodes the element section with one active segment of functions.
func Elements(at byte, functions ...byte) []byte {
	return Section(9, slices.Concat([]byte{0, 0x41, at, 0x0b}, U32(uint32(len(functions))), functions))
}

// DataCount encodes the data count section.
func DataCount(n uint32) []byte { return Raw(12, U32(n)) }

// Code encodes the code section.
func Code(bodies ...[]byte) []byte { return Section(10, bodies...) }

// Body encodes a function without locals; it appends the final end.
func Body(code ...byte) []byte { return BodyWith(nil, code...) }

// BodyWith encodes a function with locals, each in a group of its own.
func BodyWith(locals []byte, code ...byte) []byte {
	body := U32(uint32(len(locals)))
	for _, l := range locals {
		body = append(body, 1, l)
	}
	body = slices.Concat(body, code, []byte{0x0b})
	return slices.Concat(U32(uint32(len(body))), body)
}

// Data encodes the data section.
func Data(segments ...[]byte) []byte { return Section(11, segments...) }

// Active encodes an active data segment.
func Active(at int32, bytes ...byte) []byte {
	return slices.Concat([]byte{0, 0x41}, I32Const(at)[1:], []byte{0x0b}, U32(uint32(len(bytes))), bytes)
}

// Passive encodes a passive data segment.
func Passive(bytes ...byte) []byte {
	return slices.Concat([]byte{1}, U32(uint32(len(bytes))), bytes)
}

// Name encodes a name with its length.
func Name(s string) []byte { return wasmbin.AppendName(nil, s) }

// I32Const encodes an i32.const instruction.
func I32Const(v int32) []byte { return wasmbin.AppendSigned([]byte{wasmbin.OpI32Const}, int64(v)) }

// U32 encodes an unsigned number in LEB128.
func U32(v uint32) []byte { return wasmbin.AppendU32(nil, v) }
