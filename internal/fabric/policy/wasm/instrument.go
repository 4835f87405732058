package wasm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Sections of a module, by their numbers in the specification (WebAssembly 2.0, 5.5).
const (
	sectionImport = 2
	sectionGlobal = 6
	sectionExport = 7
	sectionCode   = 10
)

var header = []byte("\x00asm\x01\x00\x00\x00")

var errShort = errors.New("the module ends too early")

// A section is one part of a module.
type section struct {
	id   byte
	body []byte
}

// instrument makes a module count its steps and show its globals. A new global has
// the steps that are left: every function takes its length from it when it is called,
// and every loop its own each time around; below zero they trap. All mutable globals
// are exported, the new one last, so that they can be put back after a call. Names
// are returned.
func instrument(code []byte) ([]byte, []string, error) {
	sections, err := split(code)
	if err != nil {
		return nil, nil, err
	}
	globals, err := findGlobals(sections)
	if err != nil {
		return nil, nil, err
	}
	sections = globals.add(sections)
	for i := range sections {
		if sections[i].id != sectionCode {
			continue
		}
		if sections[i].body, err = countCode(sections[i].body, globals.steps()); err != nil {
			return nil, nil, err
		}
	}
	return unite(sections), globals.names(), nil
}

func split(code []byte) ([]section, error) {
	if !bytes.HasPrefix(code, header) {
		return nil, errors.New("this is no WebAssembly module of version 1")
	}
	r := &reader{rest: code[len(header):]}
	var sections []section
	for len(r.rest) > 0 && r.err == nil {
		id := r.byte()
		sections = append(sections, section{id, r.take(r.u32())})
	}
	return sections, r.err
}

func unite(sections []section) []byte {
	code := bytes.Clone(header)
	for _, s := range sections {
		code = append(code, s.id)
		code = binary.AppendUvarint(code, uint64(len(s.body)))
		code = append(code, s.body...)
	}
	return code
}

// globals are what is known of a module's.
type globals struct {
	imported, own int
	mutable       []int
}

func (g *globals) steps() int { return g.imported + g.own }

func findGlobals(sections []section) (*globals, error) {
	g := &globals{}
	for _, s := range sections {
		r := &reader{rest: s.body}
		switch s.id {
		case sectionImport:
			g.imports(r)
		case sectionGlobal:
			g.owns(r)
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return g, nil
}

// imports refuses imported globals: nobody has some to give.
func (g *globals) imports(r *reader) {
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		r.take(r.u32())
		r.take(r.u32())
		if kind := r.byte(); kind != 0 && r.err == nil {
			r.err = errors.New("the module imports something else than functions")
		}
		r.u32()
	}
}

func (g *globals) owns(r *reader) {
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		r.byte()
		if r.byte() == 1 {
			g.mutable = append(g.mutable, g.own)
		}
		g.own++
		for r.err == nil {
			if op := r.instruction(); op == opEnd {
				break
			}
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
func (g *globals) add(sections []section) []section {
	steps := []byte{0x7e, 1, 0x42} // a mutable i64, a constant
	steps = append(appendSigned(steps, startSteps), opEnd)
	sections = extend(sections, sectionGlobal, 1, steps)
	var exports []byte
	list := append(append([]int(nil), g.mutable...), g.steps())
	for _, i := range list {
		name := globalName(i)
		exports = binary.AppendUvarint(exports, uint64(len(name)))
		exports = append(append(exports, name...), 3)
		exports = binary.AppendUvarint(exports, uint64(i))
	}
	return extend(sections, sectionExport, len(list), exports)
}

// extend adds items to a section that is a list, or makes it.
func extend(sections []section, id byte, items int, more []byte) []section {
	at := len(sections)
	for i, s := range sections {
		if s.id == id {
			r := &reader{rest: s.body}
			count := r.u32()
			body := binary.AppendUvarint(nil, uint64(count)+uint64(items))
			sections[i].body = append(append(body, r.rest...), more...)
			return sections
		}
		if s.id > id && at == len(sections) {
			at = i
		}
	}
	body := append(binary.AppendUvarint(nil, uint64(items)), more...)
	list := append([]section(nil), sections[:at]...)
	return append(append(list, section{id, body}), sections[at:]...)
}

func countCode(body []byte, steps int) ([]byte, error) {
	r := &reader{rest: body}
	n := r.u32()
	out := binary.AppendUvarint(nil, uint64(n))
	for i := uint32(0); i < n && r.err == nil; i++ {
		function, err := countFunction(r.take(r.u32()), steps)
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		out = binary.AppendUvarint(out, uint64(len(function)))
		out = append(out, function...)
	}
	return append(out, r.rest...), r.err
}

// A block is one that is open while a function is read.
type block struct {
	at    int // where its counting goes; -1: it does not count
	count int64
}

// countFunction adds counting to a function's body.
func countFunction(body []byte, steps int) ([]byte, error) {
	r := &reader{rest: body}
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		r.u32()
		r.byte()
	}
	at := func() int { return len(body) - len(r.rest) }
	open := []block{{at: at()}}
	costs := map[int]int64{}
	for len(open) > 0 && r.err == nil {
		op := r.instruction()
		open[len(open)-1].count++
		switch op {
		case opLoop:
			open = append(open, block{at: at()})
		case opBlock, opIf:
			open = append(open, block{at: -1})
		case opEnd:
			last := open[len(open)-1]
			open = open[:len(open)-1]
			if last.at >= 0 {
				costs[last.at] = last.count
			}
			if len(open) > 0 && last.at < 0 {
				open[len(open)-1].count += last.count
			}
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = errors.New("there is something behind the function's end")
	}
	if r.err != nil {
		return nil, r.err
	}
	return insert(body, costs, steps), nil
}

func insert(body []byte, costs map[int]int64, steps int) []byte {
	out := make([]byte, 0, len(body)+32*len(costs))
	for i := range body {
		if cost := costs[i]; cost > 0 {
			out = appendCounting(out, cost, steps)
		}
		out = append(out, body[i])
	}
	return out
}

// appendCounting adds: steps -= cost; if steps < 0 { trap }.
func appendCounting(out []byte, cost int64, steps int) []byte {
	get := binary.AppendUvarint([]byte{0x23}, uint64(steps))
	set := binary.AppendUvarint([]byte{0x24}, uint64(steps))
	out = append(append(out, get...), 0x42)
	out = append(appendSigned(out, cost), 0x7d)
	out = append(append(out, set...), get...)
	return append(out, 0x42, 0x00, 0x53, opIf, 0x40, 0x00, opEnd)
}

// appendSigned adds a number as a signed LEB128.
func appendSigned(out []byte, v int64) []byte {
	for {
		b := byte(v & 0x7f)
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
