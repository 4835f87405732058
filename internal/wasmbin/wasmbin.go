// Package wasmbin reads and writes the WebAssembly binary format: numbers, names, sections and
// instructions (WebAssembly core specification 2.0, chapter 5, with the proposals for tail calls,
// exception handling and typed function references).
//
// The bytes are hostile: every length, count and index is checked against the remaining bytes
// before it is used, so no memory is allocated for elements that a file announces but lacks. The
// package checks the format, not the types: the engine does the validation (chapter 3). Modules
// with several memories are refused.
package wasmbin

import (
	"bytes"
	"errors"
	"fmt"
)

// Preamble is the magic number and the version at the beginning of every module (section 5.5.16).
const Preamble = "\x00asm\x01\x00\x00\x00"

// The section identifiers (section 5.5.2).
const (
	SectionCustom = iota
	SectionType
	SectionImport
	SectionFunction
	SectionTable
	SectionMemory
	SectionGlobal
	SectionExport
	SectionStart
	SectionElement
	SectionCode
	SectionData
	SectionDataCount
	SectionTag
	// Sections is the number of identifiers.
	Sections
)

// SectionOrder is the order of the sections in a module, except for custom ones.
var SectionOrder = [...]byte{
	SectionType, SectionImport, SectionFunction, SectionTable, SectionMemory, SectionTag, SectionGlobal, SectionExport,
	SectionStart, SectionElement, SectionDataCount, SectionCode, SectionData,
}

// The value types (section 5.3), and the prefixes of typed references.
const (
	TypeI32     = 0x7f
	TypeI64     = 0x7e
	TypeF32     = 0x7d
	TypeF64     = 0x7c
	TypeV128    = 0x7b
	TypeFunc    = 0x70
	TypeExtern  = 0x6f
	TypeExn     = 0x69
	TypeRef     = 0x64
	TypeRefNull = 0x63
	// TypeFunction is the first byte of a function type.
	TypeFunction = 0x60
	// TypeVoid is the block type of a block without parameters and results.
	TypeVoid = 0x40
)

// Section is one section of a module.
type Section struct {
	ID   byte
	Body []byte // a part of the file, never nil
}

// SectionName returns the name of a section for messages.
func SectionName(id int) string {
	return [...]string{
		"custom section", "types", "imports", "functions", "tables", "memory", "globals", "exports", "start function",
		"elements", "code", "data", "number of data segments", "tags",
	}[id]
}

// Split splits a module into its sections, in the order of the file. Each section other than custom
// ones occurs at most once and in SectionOrder.
func Split(file []byte) ([]Section, error) {
	if err := checkPreamble(file); err != nil {
		return nil, err
	}
	var sections []Section
	position := 0 // in SectionOrder
	r := &Reader{Data: file, Off: len(Preamble)}
	for r.More() {
		at := r.Off
		id := r.Byte()
		body := r.Bytes(int(r.U32()))
		if r.Err != nil {
			return nil, fmt.Errorf("section %d at byte %d: %w", id, at, r.Err)
		}
		if id != SectionCustom {
			for position < len(SectionOrder) && SectionOrder[position] != id {
				position++
			}
			if position == len(SectionOrder) {
				return nil, fmt.Errorf("section %d at byte %d is unknown or out of order", id, at)
			}
			position++
		}
		sections = append(sections, Section{id, body})
	}
	return sections, nil
}

func checkPreamble(file []byte) error {
	switch {
	case len(file) < len(Preamble) || !bytes.Equal(file[:4], []byte(Preamble[:4])):
		return errors.New("not a WebAssembly module: it does not begin with \\0asm")
	case bytes.Equal(file[4:8], []byte{0x0d, 0, 1, 0}):
		return errors.New("a component: only core modules run here, build for wasip1")
	case string(file[:8]) != Preamble:
		return fmt.Errorf("version %x of the binary format: only version 1 is known", file[4:8])
	}
	return nil
}
