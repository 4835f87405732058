package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// The sections, by their numbers in the binary format.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
	secTag
	sections
)

// order is the order in which sections stand in a file.
var order = [...]byte{
	secType, secImport, secFunction, secTable, secMemory, secTag, secGlobal, secExport, secStart, secElement, secDataCount, secCode, secData,
}

const (
	typeI32     = 0x7f
	typeI64     = 0x7e
	typeF32     = 0x7d
	typeF64     = 0x7c
	typeV128    = 0x7b
	typeFunc    = 0x70
	typeExtern  = 0x6f
	typeExn     = 0x69
	typeRef     = 0x64
	typeRefNull = 0x63
)

const (
	maxTables   = 16
	maxElements = 1 << 20 // entries of all tables: the engine allocates them at once
	maxTypes    = 1 << 20
	pageLimit   = 1 << 16
)

// A module is what is known of a file after its sections were read.
type module struct {
	sections  [sections][]byte
	names     []byte // the name section
	producers []byte // what made the file
	types     int
	params    []uint32 // of each type
	kinds     []uint32 // the types of the functions that are defined
	imported  int      // functions
	functions int      // with the imported ones
	globals   int      // with the imported ones
	constants int      // imported globals
	tables    int
	memories  int
	memory    Limits
	state     []Global // the mutable ones
	exports   int
	start     *uint32
	data      []segment
	dataCount bool
	passive   bool
}

// A segment is one data segment.
type segment struct {
	Segment
	passive bool
}

func parse(file []byte) (*module, error) {
	if err := preamble(file); err != nil {
		return nil, err
	}
	m := &module{}
	if err := m.split(&reader{b: file, off: 8}); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		section int
		read    func(*reader)
	}{
		{secType, m.readTypes},
		{secImport, m.readImports},
		{secFunction, m.readFunctions},
		{secTable, m.readTables},
		{secMemory, m.readMemory},
		{secTag, m.readTags},
		{secGlobal, m.readGlobals},
		{secExport, m.readExports},
		{secStart, m.readStart},
		{secElement, m.readElements},
		{secDataCount, m.readDataCount},
		{secData, m.readData},
	} {
		if err := m.read(part.section, part.read); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func preamble(file []byte) error {
	switch {
	case len(file) < 8 || !bytes.Equal(file[:4], []byte("\x00asm")):
		return errors.New("not a WebAssembly module: it does not begin with \\0asm")
	case bytes.Equal(file[4:8], []byte{0x0d, 0, 1, 0}):
		return errors.New("a component: only core modules run here, build for wasip1")
	case !bytes.Equal(file[4:8], []byte{1, 0, 0, 0}):
		return fmt.Errorf("version %x of the binary format: only version 1 is known", file[4:8])
	}
	return nil
}

// split cuts the file into its sections and keeps the custom section "name".
func (m *module) split(r *reader) error {
	place := 0
	for r.more() {
		id := r.byte()
		body := r.bytes(int(r.u32()))
		if r.err != nil {
			return fmt.Errorf("section %d at byte %d: %w", id, r.off, r.err)
		}
		if id == secCustom {
			m.custom(body)
			continue
		}
		for place < len(order) && order[place] != id {
			place++
		}
		if place == len(order) {
			return fmt.Errorf("section %d at byte %d is unknown or out of order", id, r.off)
		}
		place++
		m.sections[id] = body
		if body == nil {
			return fmt.Errorf("section %d is empty", id)
		}
	}
	return r.err
}

func (m *module) custom(body []byte) {
	r := &reader{b: body}
	switch name := r.name(); {
	case r.err != nil:
	case name == "name":
		m.names = body[r.off:]
	case name == "producers":
		m.producers = body[r.off:]
	}
}

func (m *module) read(section int, read func(*reader)) error {
	body := m.sections[section]
	if body == nil {
		return nil
	}
	r := &reader{b: body}
	read(r)
	if r.err == nil && r.left() > 0 {
		r.fail("%d bytes after the end", r.left())
	}
	if r.err != nil {
		return fmt.Errorf("%s: %w", sectionName(section), r.err)
	}
	return nil
}

func sectionName(section int) string {
	return [...]string{
		"custom section", "types", "imports", "functions", "tables", "memory", "globals", "exports", "start function",
		"elements", "code", "data", "number of data segments", "tags",
	}[section]
}

func (m *module) readTypes(r *reader) {
	m.types = r.count(3)
	if m.types > maxTypes {
		r.fail("%d types: the limit is %d", m.types, maxTypes)
	}
	for range m.types {
		if form := r.byte(); r.err == nil && form != 0x60 {
			r.fail("type of form 0x%02x: garbage-collected types can't be handled", form)
		}
		m.params = append(m.params, uint32(r.valueTypes()))
		r.valueTypes()
	}
}

func (r *reader) valueTypes() int {
	n := r.count(1)
	for range n {
		r.valueType()
	}
	return n
}

func (m *module) readImports(r *reader) {
	for range r.count(4) {
		from, name := r.name(), r.name()
		switch kind := r.byte(); kind {
		case 0:
			r.index("type", m.types)
			m.imported++
		case 1:
			r.fail("table %s.%s is imported: a function owns its tables", from, name)
		case 2:
			r.fail("memory %s.%s is imported: a function owns its memory", from, name)
		case 3:
			r.valueType()
			if r.byte() != 0 {
				r.fail("mutable global %s.%s is imported: its value would be nobody's to reset", from, name)
			}
			m.constants++
		case 4:
			r.fail("tag %s.%s is imported: nothing here provides one", from, name)
		default:
			r.fail("import %s.%s of kind %d", from, name, kind)
		}
		if r.err != nil {
			return
		}
	}
	m.functions, m.globals = m.imported, m.constants
}

func (m *module) readFunctions(r *reader) {
	n := r.count(1)
	m.functions += n
	for range n {
		m.kinds = append(m.kinds, r.index("type", m.types))
	}
}

func (m *module) readTables(r *reader) {
	m.tables = r.count(3)
	if m.tables > maxTables {
		r.fail("%d tables: the limit is %d", m.tables, maxTables)
	}
	var entries uint64
	for range m.tables {
		if t := r.valueType(); r.err == nil && t != typeFunc && t != typeExtern {
			r.fail("table of type 0x%02x: only funcref and externref can be handled", t)
		}
		entries += uint64(r.limits("table").Min)
	}
	if entries > maxElements {
		r.fail("%d table entries: the limit is %d", entries, maxElements)
	}
}

func (m *module) readMemory(r *reader) {
	m.memories = r.count(2)
	if m.memories > 1 {
		r.fail("%d memories: a function has one", m.memories)
	}
	if m.memories == 1 {
		m.memory = r.limits("memory")
	}
	if m.memory.Min > pageLimit || m.memory.Max > pageLimit {
		r.fail("memory of %d to %d pages: 4 GiB are %d", m.memory.Min, m.memory.Max, pageLimit)
	}
}

func (r *reader) limits(what string) Limits {
	flags := r.byte()
	switch {
	case flags&4 != 0:
		r.fail("%s with addresses of 64 bits can't be handled", what)
	case flags&2 != 0:
		r.fail("%s shared by threads can't be handled", what)
	case flags > 1:
		r.fail("%s limits with flags 0x%02x can't be handled", what, flags)
	}
	l := Limits{Min: r.u32(), Max: pageLimit}
	if flags&1 != 0 {
		l.Max = r.u32()
		if l.Max < l.Min {
			r.fail("%s limits from %d to %d", what, l.Min, l.Max)
		}
	}
	return l
}

func (m *module) readTags(r *reader) {
	for range r.count(2) {
		r.byte()
		r.index("type", m.types)
	}
}

func (m *module) readGlobals(r *reader) {
	for range r.count(3) {
		t, mutable := r.valueType(), r.byte() != 0
		if mutable {
			switch t {
			case typeI32, typeI64, typeF32, typeF64:
				m.state = append(m.state, Global{Index: uint32(m.globals), Name: fmt.Sprintf("%sglobal.%d", Reserved, m.globals)})
			default:
				r.fail("global %d is mutable and of type 0x%02x: vectors and references can't be reset", m.globals, t)
			}
		}
		m.constant(r)
		m.globals++
	}
}

// constant reads a constant expression.
func (m *module) constant(r *reader) {
	for r.err == nil {
		switch op := r.byte(); op {
		case 0x0b:
			return
		case 0x41:
			r.signed(32)
		case 0x42:
			r.signed(64)
		case 0x43:
			r.bytes(4)
		case 0x44:
			r.bytes(8)
		case 0x6a, 0x6b, 0x6c, 0x7c, 0x7d, 0x7e: // extended constant expressions
		case 0x23:
			r.index("global", m.globals)
		case 0xd0:
			r.signed(33)
		case 0xd2:
			r.index("function", m.functions)
		case 0xfd:
			if r.u32() != 12 {
				r.fail("vector instruction in a constant expression")
			}
			r.bytes(16)
		default:
			r.fail("opcode 0x%02x in a constant expression", op)
		}
	}
}

func (m *module) readExports(r *reader) {
	m.exports = r.count(3)
	limits := [...]int{m.functions, m.tables, m.memories, m.globals}
	for range m.exports {
		name := r.name()
		if strings.HasPrefix(name, Reserved) {
			r.fail("export %q: names that begin with %q are reserved", name, Reserved)
		}
		switch kind := r.byte(); {
		case int(kind) < len(limits):
			r.index("export of item", limits[kind])
		case kind == 4:
			r.u32()
		default:
			r.fail("export %q of kind %d", name, kind)
		}
		if r.err != nil {
			return
		}
	}
}

func (m *module) readStart(r *reader) {
	start := r.index("function", m.functions)
	m.start = &start
}

func (m *module) readElements(r *reader) {
	for range r.count(3) {
		flags := r.u32()
		if flags > 7 {
			r.fail("element segment with flags %d", flags)
			return
		}
		if flags&1 == 0 { // active
			if flags&2 != 0 {
				r.u32()
			}
			m.constant(r)
		}
		m.elements(r, flags)
		if r.err != nil {
			return
		}
	}
}

func (m *module) elements(r *reader, flags uint32) {
	expressions := flags&4 != 0
	if flags&3 != 0 {
		if expressions {
			r.valueType()
		} else {
			r.byte()
		}
	}
	if expressions {
		for range r.count(2) {
			m.constant(r)
		}
		return
	}
	for range r.count(1) {
		r.index("function", m.functions)
	}
}

func (m *module) readDataCount(r *reader) {
	r.u32()
	m.dataCount = true
}
