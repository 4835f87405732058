package optimize

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

const (
	maxTables = 16
	// maxItems bounds the globals, exports, data segments and the like, each of which takes hundreds
	// of bytes in the engine. The limits of browsers are about the same.
	maxItems    = 1 << 20
	maxElements = 1 << 20 // entries of all tables: the engine allocates them at once
	maxTypes    = 1 << 16 // the engine needs about 460 bytes for each
	// maxSignature bounds the parameters, and the results, of a type, as browsers do, and
	// maxSignatures the sum of the squares of their numbers: the engine builds the name of each type
	// by appending to it for each parameter, which took 18 s for 100,000 of them on a busy machine.
	maxSignature  = 1000
	maxSignatures = 1 << 26
	// maxMutable bounds the mutable globals, each of which is exported, and restored after each call.
	maxMutable = 1 << 16
	pageLimit  = 1 << 16
)

// module is the content of a file's sections.
type module struct {
	sections        [wasmbin.Sections][]byte
	names           []byte   // the name section
	producers       []byte   // the producers section
	types           int      // function types
	params          []uint32 // of each type
	typeOf          []uint32 // the type of each function that is defined
	imported        int      // functions
	functions       int      // imported ones included
	globals         int      // imported ones included
	importedGlobals int
	tables          int
	memories        int
	memory          Limits
	mutableGlobals  []Global
	exports         int
	start           *uint32
	data            []dataSegment
	dataCount       bool
	passive         bool // there is a passive data segment
}

// dataSegment is one data segment.
type dataSegment struct {
	Segment
	passive bool
}

func parse(file []byte) (*module, error) {
	sections, err := wasmbin.Split(file)
	if err != nil {
		return nil, err
	}
	m := &module{}
	for _, s := range sections {
		if s.ID == wasmbin.SectionCustom {
			m.readCustom(s.Body)
		} else {
			m.sections[s.ID] = s.Body
		}
	}
	for _, part := range []struct {
		section int
		read    func(*wasmbin.Reader)
	}{
		{wasmbin.SectionType, m.readTypes},
		{wasmbin.SectionImport, m.readImports},
		{wasmbin.SectionFunction, m.readFunctions},
		{wasmbin.SectionTable, m.readTables},
		{wasmbin.SectionMemory, m.readMemory},
		{wasmbin.SectionTag, m.readTags},
		{wasmbin.SectionGlobal, m.readGlobals},
		{wasmbin.SectionExport, m.readExports},
		{wasmbin.SectionStart, m.readStart},
		{wasmbin.SectionElement, m.readElements},
		{wasmbin.SectionDataCount, m.readDataCount},
		{wasmbin.SectionData, m.readData},
	} {
		if err := m.readSection(part.section, part.read); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *module) readCustom(body []byte) {
	r := &wasmbin.Reader{Data: body}
	switch name := r.Name(); {
	case r.Err != nil:
	case name == "name":
		m.names = body[r.Off:]
	case name == "producers":
		m.producers = body[r.Off:]
	}
}

// fromGo reports whether the producers section names Go as the language.
func (m *module) fromGo() bool {
	return bytes.Contains(m.producers, []byte("\x08language\x01\x02Go"))
}

func (m *module) readSection(section int, read func(*wasmbin.Reader)) error {
	body := m.sections[section]
	if body == nil {
		return nil
	}
	r := &wasmbin.Reader{Data: body}
	read(r)
	if r.Err == nil && r.Left() > 0 {
		r.Failf("%d bytes after the end", r.Left())
	}
	if n := (&wasmbin.Reader{Data: body}).U32(); r.Err == nil && n > maxItems && section != wasmbin.SectionStart {
		r.Failf("%d entries: the limit is %d", n, maxItems)
	}
	if r.Err != nil {
		return fmt.Errorf("%s: %w", wasmbin.SectionName(section), r.Err)
	}
	return nil
}

func (m *module) readTypes(r *wasmbin.Reader) {
	m.types = r.Count(3)
	if m.types > maxTypes {
		r.Failf("%d types: the limit is %d", m.types, maxTypes)
	}
	work := 0
	for range m.types {
		if form := r.Byte(); r.Err == nil && form != wasmbin.TypeFunction {
			r.Failf("type of form 0x%02x: garbage-collected types are not supported", form)
		}
		params, results := r.ValueTypes(), r.ValueTypes()
		if max(params, results) > maxSignature {
			r.Failf("a type has %d parameters and %d results: the limit is %d", params, results, maxSignature)
		}
		if work += (params + results) * (params + results); work > maxSignatures {
			r.Failf("too many parameters and results of all types: split the module into several")
		}
		if r.Err != nil {
			return
		}
		m.params = append(m.params, uint32(params)) //nolint:gosec // checked above
	}
}

func (m *module) readImports(r *wasmbin.Reader) {
	for range r.Count(4) {
		from, name := r.Name(), r.Name()
		switch kind := r.Byte(); kind {
		case 0:
			r.Index("type", m.types)
			m.imported++
		case 1:
			r.Failf("table %s.%s is imported: a function owns its tables", from, name)
		case 2:
			r.Failf("memory %s.%s is imported: a function owns its memory", from, name)
		case 3:
			r.ValueType()
			if r.Byte() != 0 {
				r.Failf("mutable global %s.%s is imported: a reset could not restore its value", from, name)
			}
			m.importedGlobals++
		case 4:
			r.Failf("tag %s.%s is imported: the host provides none", from, name)
		default:
			r.Failf("import %s.%s of kind %d", from, name, kind)
		}
		if r.Err != nil {
			return
		}
	}
	m.functions, m.globals = m.imported, m.importedGlobals
}

func (m *module) readFunctions(r *wasmbin.Reader) {
	n := r.Count(1)
	m.functions += n
	for range n {
		m.typeOf = append(m.typeOf, r.Index("type", m.types))
	}
}

func (m *module) readTables(r *wasmbin.Reader) {
	m.tables = r.Count(3)
	if m.tables > maxTables {
		r.Failf("%d tables: the limit is %d", m.tables, maxTables)
	}
	var entries uint64
	for range m.tables {
		if t := r.ValueType(); r.Err == nil && t != wasmbin.TypeFunc && t != wasmbin.TypeExtern {
			r.Failf("table of type 0x%02x: only funcref and externref are supported", t)
		}
		entries += uint64(readLimits(r, "table").Min)
	}
	if entries > maxElements {
		r.Failf("%d table entries: the limit is %d", entries, maxElements)
	}
}

func (m *module) readMemory(r *wasmbin.Reader) {
	m.memories = r.Count(2)
	if m.memories > 1 {
		r.Failf("%d memories: a function has one", m.memories)
	}
	if m.memories == 1 {
		m.memory = readLimits(r, "memory")
	}
	if m.memory.Min > pageLimit || m.memory.Max > pageLimit {
		r.Failf("memory of %d to %d pages: 4 GiB are %d", m.memory.Min, m.memory.Max, pageLimit)
	}
}

// readLimits reads the limits of a memory or table.
func readLimits(r *wasmbin.Reader, kind string) Limits {
	flags := r.Byte()
	switch {
	case flags&4 != 0:
		r.Failf("%s with addresses of 64 bits is not supported", kind)
	case flags&2 != 0:
		r.Failf("%s shared by threads is not supported", kind)
	case flags > 1:
		r.Failf("%s limits with flags 0x%02x are not supported", kind, flags)
	}
	l := Limits{Min: r.U32(), Max: pageLimit}
	if flags&1 != 0 {
		l.Max = r.U32()
		if l.Max < l.Min {
			r.Failf("%s limits from %d to %d", kind, l.Min, l.Max)
		}
	}
	return l
}

func (m *module) readTags(r *wasmbin.Reader) {
	for range r.Count(2) {
		r.Byte()
		r.Index("type", m.types)
	}
}

func (m *module) readGlobals(r *wasmbin.Reader) {
	for range r.Count(3) {
		t, mutable := r.ValueType(), r.Byte() != 0
		if mutable {
			switch t {
			case wasmbin.TypeI32, wasmbin.TypeI64, wasmbin.TypeF32, wasmbin.TypeF64:
				if len(m.mutableGlobals) == maxMutable {
					r.Failf("more than %d mutable globals", maxMutable)
				}
				m.mutableGlobals = append(m.mutableGlobals, Global{Index: uint32(m.globals), Name: fmt.Sprintf("%sglobal.%d", Reserved, m.globals)})
			default:
				r.Failf("global %d is mutable and of type 0x%02x: vectors and references can't be reset", m.globals, t)
			}
		}
		m.readConstant(r)
		m.globals++
		if r.Err != nil {
			return
		}
	}
}

// readConstant reads a constant expression (WebAssembly core specification 2.0, section 3.3.10, and
// the extended constant expressions).
func (m *module) readConstant(r *wasmbin.Reader) {
	for r.Err == nil {
		i := r.Instruction()
		operand := wasmbin.Reader{Data: r.Data, Off: i.At + 1}
		switch i.Op {
		case wasmbin.OpEnd:
			return
		case wasmbin.OpI32Const, wasmbin.OpI64Const, wasmbin.OpF32Const, wasmbin.OpF64Const, wasmbin.OpRefNull,
			wasmbin.OpI32Add, wasmbin.OpI32Sub, wasmbin.OpI32Mul, wasmbin.OpI64Add, wasmbin.OpI64Sub, wasmbin.OpI64Mul:
		case wasmbin.OpGlobalGet:
			operand.Index("global", m.globals)
		case wasmbin.OpRefFunc:
			operand.Index("function", m.functions)
		case wasmbin.OpPrefixVector:
			if i.Sub != wasmbin.SubV128Const {
				r.Failf("vector instruction in a constant expression")
			}
		default:
			r.Failf("opcode 0x%02x in a constant expression", i.Op)
		}
		if operand.Err != nil {
			r.Failf("%w", operand.Err)
		}
	}
}

func (m *module) readExports(r *wasmbin.Reader) {
	m.exports = r.Count(3)
	limits := [...]int{m.functions, m.tables, m.memories, m.globals}
	for range m.exports {
		name := r.Name()
		if strings.HasPrefix(name, Reserved) {
			r.Failf("export %q: names that begin with %q are reserved", name, Reserved)
		}
		switch kind := r.Byte(); {
		case int(kind) < len(limits):
			r.Index("export of item", limits[kind])
		case kind == 4:
			r.U32()
		default:
			r.Failf("export %q of kind %d", name, kind)
		}
		if r.Err != nil {
			return
		}
	}
}

func (m *module) readStart(r *wasmbin.Reader) {
	start := r.Index("function", m.functions)
	m.start = &start
}

func (m *module) readElements(r *wasmbin.Reader) {
	for range r.Count(3) {
		flags := r.U32()
		if flags > 7 {
			r.Failf("element segment with flags %d", flags)
			return
		}
		if flags&1 == 0 { // active
			if flags&2 != 0 {
				r.U32()
			}
			m.readConstant(r)
		}
		m.readElementList(r, flags)
		if r.Err != nil {
			return
		}
	}
}

func (m *module) readElementList(r *wasmbin.Reader, flags uint32) {
	expressions := flags&4 != 0
	if flags&3 != 0 {
		if expressions {
			r.ValueType()
		} else {
			r.Byte()
		}
	}
	if expressions {
		for range r.Count(2) {
			m.readConstant(r)
		}
		return
	}
	for range r.Count(1) {
		r.Index("function", m.functions)
	}
}

func (m *module) readDataCount(r *wasmbin.Reader) {
	r.U32()
	m.dataCount = true
}
