package wasm

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// instrument makes a module count its steps and export its state. A new mutable global holds the
// steps that are left: every function subtracts its cost from it at its entry, and every loop its
// cost at each iteration; the code traps when it falls below zero. All mutable globals are
// exported, the new one last, so that they can be restored after a call. instrument returns the
// names of these exports.
func instrument(code []byte) ([]byte, []string, error) {
	sections, err := wasmbin.Split(code)
	if err != nil {
		return nil, nil, err
	}
	globals, err := findGlobals(sections)
	if err != nil {
		return nil, nil, err
	}
	sections = globals.add(sections)
	for i := range sections {
		if sections[i].ID != wasmbin.SectionCode {
			continue
		}
		if sections[i].Body, err = instrumentCode(sections[i].Body, globals.steps()); err != nil {
			return nil, nil, err
		}
	}
	return join(sections), globals.names(), nil
}

func join(sections []wasmbin.Section) []byte {
	code := []byte(wasmbin.Preamble)
	for _, s := range sections {
		code = wasmbin.AppendSection(code, s.ID, s.Body)
	}
	return code
}

// globals are a module's globals. None is imported.
type globals struct {
	defined int
	mutable []int
}

// steps returns the index of the new global.
func (g *globals) steps() int { return g.defined }

func findGlobals(sections []wasmbin.Section) (*globals, error) {
	g := &globals{}
	for _, s := range sections {
		r := &wasmbin.Reader{Data: s.Body}
		switch s.ID {
		case wasmbin.SectionImport:
			checkImports(r)
		case wasmbin.SectionGlobal:
			g.read(r)
		}
		if r.Err != nil {
			return nil, fmt.Errorf("%s: %w", wasmbin.SectionName(int(s.ID)), r.Err)
		}
	}
	return g, nil
}

// checkImports refuses imports other than functions: the host provides nothing else.
func checkImports(r *wasmbin.Reader) {
	for range r.Count(4) {
		r.Name()
		r.Name()
		if kind := r.Byte(); kind != 0 && r.Err == nil {
			r.Failf("the module imports something else than functions")
		}
		if r.U32(); r.Err != nil {
			return
		}
	}
}

func (g *globals) read(r *wasmbin.Reader) {
	for range r.Count(3) {
		r.ValueType()
		if r.Byte() == 1 {
			g.mutable = append(g.mutable, g.defined)
		}
		g.defined++
		for r.Err == nil && r.Instruction().Op != wasmbin.OpEnd {
		}
		if r.Err != nil {
			return
		}
	}
}

func (g *globals) names() []string {
	var names []string
	for _, i := range g.mutable {
		names = append(names, globalName(i))
	}
	return append(names, globalName(g.steps()))
}

func globalName(i int) string { return fmt.Sprintf("outboard:%d", i) }

// add adds the new global and the exports.
func (g *globals) add(sections []wasmbin.Section) []wasmbin.Section {
	steps := wasmbin.AppendSigned([]byte{wasmbin.TypeI64, 1, wasmbin.OpI64Const}, startSteps)
	sections = extend(sections, wasmbin.SectionGlobal, 1, append(steps, wasmbin.OpEnd))
	var exports []byte
	list := append(slices.Clone(g.mutable), g.steps())
	for _, i := range list {
		exports = append(wasmbin.AppendName(exports, globalName(i)), 3)
		exports = wasmbin.AppendU32(exports, uint32(i))
	}
	return extend(sections, wasmbin.SectionExport, len(list), exports)
}

// extend adds elements to a section that is a vector, or creates the section.
func extend(sections []wasmbin.Section, id byte, elements int, more []byte) []wasmbin.Section {
	for i, s := range sections {
		if s.ID == id {
			r := &wasmbin.Reader{Data: s.Body}
			body := wasmbin.AppendU32(nil, r.U32()+uint32(elements))
			sections[i].Body = append(append(body, s.Body[r.Off:]...), more...)
			return sections
		}
	}
	position := func(id byte) int { return slices.Index(wasmbin.SectionOrder[:], id) }
	at := slices.IndexFunc(sections, func(s wasmbin.Section) bool {
		return s.ID != wasmbin.SectionCustom && position(s.ID) > position(id)
	})
	if at < 0 {
		at = len(sections)
	}
	body := append(wasmbin.AppendU32(nil, uint32(elements)), more...)
	return slices.Insert(sections, at, wasmbin.Section{ID: id, Body: body})
}

func instrumentCode(body []byte, steps int) ([]byte, error) {
	r := &wasmbin.Reader{Data: body}
	n := r.Count(2)
	out := wasmbin.AppendU32(nil, uint32(n))
	for i := range n {
		function, err := instrumentBody(r.Bytes(r.Count(1)), steps)
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		out = wasmbin.AppendU32(out, uint32(len(function)))
		out = append(out, function...)
	}
	if r.Err == nil && r.Left() > 0 {
		r.Failf("%d bytes after the end", r.Left())
	}
	return out, r.Err
}

// openBlock is a block whose end is not reached yet.
type openBlock struct {
	at    int // offset of its counting code; -1: the enclosing block counts for it
	count int64
}

// instrumentBody adds counting to a function's body.
func instrumentBody(body []byte, steps int) ([]byte, error) {
	r := &wasmbin.Reader{Data: body}
	r.Locals()
	open := []openBlock{{at: r.Off}}
	costs := map[int]int64{}
	for len(open) > 0 && r.Err == nil {
		i := r.Instruction()
		if why := refused(i); why != "" && r.Err == nil {
			return nil, errors.New(why)
		}
		open[len(open)-1].count++
		switch i.Immediate {
		case wasmbin.LoopImmediate:
			open = append(open, openBlock{at: r.Off})
		case wasmbin.BlockImmediate:
			open = append(open, openBlock{at: -1})
		case wasmbin.EndMark:
			last := open[len(open)-1]
			open = open[:len(open)-1]
			if last.at >= 0 {
				costs[last.at] = last.count
			} else {
				open[len(open)-1].count += last.count
			}
		default:
		}
	}
	if r.Err == nil && r.Left() > 0 {
		return nil, fmt.Errorf("%d bytes after the function's end", r.Left())
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return insert(body, costs, steps), nil
}

// refused returns why an instruction is not allowed, or "" if it is. Not allowed are vectors,
// threads, exceptions, tail calls, and instructions that change tables or drop segments, which
// could not be undone after a call.
func refused(i wasmbin.Instruction) string {
	switch op := i.Opcode(); {
	case op >= 0x06 && op <= 0x0a, op >= 0x12 && op <= 0x19, op == wasmbin.OpTryTable, op == wasmbin.OpTableSet,
		op >= 0xd3 && op <= 0xd6, i.Op == wasmbin.OpPrefixVector, i.Op == wasmbin.OpPrefixAtomic,
		op == wasmbin.OpDataDrop, op >= wasmbin.OpTableInit && op != wasmbin.OpTableSize && i.Op == wasmbin.OpPrefixMisc:
		return fmt.Sprintf("instruction %s is not allowed", i.Name())
	}
	return ""
}

// insert returns a body with the code that counts steps inserted at the offsets of costs.
func insert(body []byte, costs map[int]int64, steps int) []byte {
	out := make([]byte, 0, len(body)+32*len(costs))
	from := 0
	for _, at := range slices.Sorted(maps.Keys(costs)) {
		out = append(out, body[from:at]...)
		out = appendCounting(out, costs[at], steps)
		from = at
	}
	return append(out, body[from:]...)
}

// appendCounting appends the code of: steps -= cost; if steps < 0 { trap }.
func appendCounting(out []byte, cost int64, steps int) []byte {
	get := wasmbin.AppendU32([]byte{wasmbin.OpGlobalGet}, uint32(steps))
	set := wasmbin.AppendU32([]byte{wasmbin.OpGlobalSet}, uint32(steps))
	out = append(append(out, get...), wasmbin.OpI64Const)
	out = append(wasmbin.AppendSigned(out, cost), wasmbin.OpI64Sub)
	out = append(append(out, set...), get...)
	return append(out, wasmbin.OpI64Const, 0, wasmbin.OpI64LtS, wasmbin.OpIf, wasmbin.TypeVoid, wasmbin.OpUnreachable, wasmbin.OpEnd)
}
