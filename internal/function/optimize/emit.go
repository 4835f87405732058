package optimize

import (
	"errors"
	"fmt"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// errTooCostly is the cause of the refusal of a module that would take too long to compile.
var errTooCostly = errors.New("too much to compile")

// emitter writes the instrumented module.
type emitter struct {
	m       *module
	scanner bodyScanner
	metered bool
	checks  int
	cost    int64 // of compiling the code emitted so far
	maxCost int64
}

// emitCode copies the code section and inserts the meter checks.
func (e *emitter) emitCode() ([]byte, error) {
	if err := e.assignEntryCosts(); err != nil {
		return nil, err
	}
	old := e.m.sections[wasmbin.SectionCode]
	out := make([]byte, 0, len(old)+len(old)/8+64)
	out = wasmbin.AppendU32(out, uint32(e.m.functions-e.m.imported+e.addedFunctions()))
	err := e.scanBodies(func(i int, body []byte) { out = e.emitBody(out, i, body) })
	if err == nil && e.cost > e.maxCost {
		err = fmt.Errorf("%w: it costs %d units, and the limit is %d; split it into several", errTooCostly, e.cost, e.maxCost)
	}
	if e.metered {
		out = e.emitYield(out)
	}
	return out, err
}

// scanBodies scans all functions and calls each behind every scan.
func (e *emitter) scanBodies(each func(f int, body []byte)) error {
	r := &wasmbin.Reader{Data: e.m.sections[wasmbin.SectionCode]}
	n := 0
	if r.More() {
		n = r.Count(2)
	}
	if n != e.m.functions-e.m.imported {
		return fmt.Errorf("%d bodies for %d functions", n, e.m.functions-e.m.imported)
	}
	for i := range n {
		body := r.Bytes(r.Count(1))
		if r.Err != nil {
			return r.Err
		}
		if err := e.scanner.scan(body); err != nil {
			return fmt.Errorf("function %d: %w", e.m.imported+i, err)
		}
		if c := e.scanner.cost; c.units() > e.maxCost {
			return fmt.Errorf("function %d: %w: it costs %d units of the %d that a module may; it has %d bytes, %d basic blocks, %d loops and %d locals; split it",
				e.m.imported+i, errTooCostly, c.units(), e.maxCost, len(body), c.blocks/wholeBlock, c.loops, c.locals)
		}
		each(e.m.imported+i, body)
	}
	if r.Left() > 0 {
		return fmt.Errorf("%d bytes after the end", r.Left())
	}
	return nil
}

// addedFunctions returns how many functions, types and globals are added.
func (e *emitter) addedFunctions() int {
	if e.metered {
		return 1
	}
	return 0
}

// emitYield appends the function that a check calls when the meter is below zero: it grows the
// memory to the size Yield, which calls the host, and traps if the host left the meter below zero.
func (e *emitter) emitYield(out []byte) []byte {
	body := []byte{
		0,                      // no locals
		0x41, 0x80, 0x80, 0x04, // i32.const 65536
		0x3f, 0x00, // memory.size
		0x6b,       // i32.sub
		0x40, 0x00, // memory.grow
		0x1a, // drop
	}
	body = wasmbin.AppendU32(append(body, 0x23), uint32(e.m.globals)) // global.get
	body = append(body,
		0x41, 0x00, 0x48, // i32.const 0, i32.lt_s
		0x04, 0x40, 0x00, 0x0b, // if, unreachable, end
		0x0b,
	)
	return append(wasmbin.AppendU32(out, uint32(len(body))), body...)
}

// emitBody appends one function with its length in front.
func (e *emitter) emitBody(out []byte, f int, body []byte) []byte {
	e.cost += e.scanner.cost.units()
	if e.scanner.entryCosts[f].upper > 0 {
		e.scanner.checks[0].needed = false
	}
	if !e.metered || !e.scanner.needsChecks() {
		out = wasmbin.AppendU32(out, uint32(len(body)))
		return append(out, body...)
	}
	at := len(out)
	out = append(out, make([]byte, wasmbin.PaddedSize)...)
	local := e.m.params[e.m.typeOf[f-e.m.imported]] + uint32(e.scanner.locals.Count)
	out = wasmbin.AppendU32(out, uint32(e.scanner.locals.Groups+1))
	from, code := e.scanner.locals.At, e.scanner.checks[0].offset
	out = append(out, body[from:code]...)
	out = append(out, 1, wasmbin.TypeI32)
	from = code
	for _, c := range e.scanner.checks {
		if c.needed {
			out = append(out, body[from:c.offset]...)
			if c.bulk {
				out = e.emitBulkCheck(out, local)
			} else {
				out = e.emitCheck(out, c.cost(), local)
			}
			from = c.offset
			e.checks++
		}
	}
	out = append(out, body[from:]...)
	wasmbin.PutPaddedU32(out[at:], uint32(len(out)-at-wasmbin.PaddedSize))
	return out
}

// emitBulkCheck appends a check in front of an instruction whose last operand is a number of bytes.
// Fewer than 1,024 bytes are in the cost of the code around it:
//
//	local = bytes
//	if local >= 1024 {
//		local = meter - local / 64
//		meter = local
//		if local >= 0 {} else { yield() }
//	}
func (e *emitter) emitBulkCheck(out []byte, local uint32) []byte {
	meter := uint32(e.m.globals)
	out = wasmbin.AppendU32(append(out, opLocalTee), local)
	out = wasmbin.AppendU32(append(out, opLocalGet), local)
	out = append(out, opI32Const, 0x80, 0x08, wasmbin.OpI32GeU, opIf, typeVoid) // 1024
	out = wasmbin.AppendU32(append(out, opGlobalGet), meter)
	out = wasmbin.AppendU32(append(out, opLocalGet), local)
	out = append(out, opI32Const, 6, wasmbin.OpI32ShrU)
	out = e.emitCheckTail(out, local)
	return append(out, opEnd)
}

// emitCheck appends a check:
//
//	local = meter - cost
//	meter = local
//	if local >= 0 {} else { yield() }
func (e *emitter) emitCheck(out []byte, cost int32, local uint32) []byte {
	out = wasmbin.AppendU32(append(out, opGlobalGet), uint32(e.m.globals))
	out = wasmbin.AppendSigned(append(out, opI32Const), int64(cost))
	return e.emitCheckTail(out, local)
}

// emitCheckTail appends the end of a check, behind the meter and the number to subtract. The branch
// without the call comes first: at the join the register allocator keeps values where the
// predecessor that it visits first has them, and behind a call all of them are spilled.
func (e *emitter) emitCheckTail(out []byte, local uint32) []byte {
	meter, yield := uint32(e.m.globals), uint32(e.m.functions)
	out = wasmbin.AppendU32(append(out, opI32Sub, opLocalTee), local)
	out = wasmbin.AppendU32(append(out, opGlobalSet), meter)
	out = wasmbin.AppendU32(append(out, opLocalGet), local)
	out = append(out, opI32Const, 0, opI32GeS, opIf, typeVoid, opElse)
	out = wasmbin.AppendU32(append(out, opCall), yield)
	return append(out, opEnd)
}

// emitFile joins the sections, old and new.
func (e *emitter) emitFile(code []byte) []byte {
	out := make([]byte, 0, len(code)+len(code)/2)
	out = append(out, wasmbin.Preamble...)
	for _, id := range wasmbin.SectionOrder {
		if body := e.emitSection(id, code); body != nil {
			out = wasmbin.AppendSection(out, id, body)
		}
	}
	if names := e.m.functionNames(); names != nil {
		body := wasmbin.AppendName(nil, "name")
		out = wasmbin.AppendSection(out, wasmbin.SectionCustom, wasmbin.AppendSection(body, 1, names))
	}
	return out
}

func (e *emitter) emitSection(id byte, code []byte) []byte {
	old := e.m.sections[id]
	switch id {
	case wasmbin.SectionType:
		return e.appendElement(old, []byte{wasmbin.TypeFunction, 0, 0}) // a function of nothing to nothing
	case wasmbin.SectionFunction:
		return e.appendElement(old, wasmbin.AppendU32(nil, uint32(e.m.types)))
	case wasmbin.SectionGlobal:
		return e.appendElement(old, []byte{wasmbin.TypeI32, 1, opI32Const, 0, opEnd})
	case wasmbin.SectionMemory:
		return e.emitMemory()
	case wasmbin.SectionExport:
		return e.emitExports(old)
	case wasmbin.SectionStart:
		return nil
	case wasmbin.SectionCode:
		return code
	case wasmbin.SectionDataCount, wasmbin.SectionData:
		if !e.m.passive && !e.scanner.usesMemoryInit {
			return nil
		}
		if id == wasmbin.SectionData && old != nil {
			return e.m.emitData()
		}
	}
	return old
}

// appendElement returns a section with one element more at its end.
func (e *emitter) appendElement(old, element []byte) []byte {
	if !e.metered {
		return old
	}
	if old == nil {
		return append([]byte{1}, element...)
	}
	r := &wasmbin.Reader{Data: old}
	out := wasmbin.AppendU32(make([]byte, 0, len(old)+len(element)+1), r.U32()+1)
	out = append(out, old[r.Off:]...)
	return append(out, element...)
}

// emitMemory writes the memory section without a maximum, see Result.Memory. A metered module has a
// memory: a check grows it to call the host.
func (e *emitter) emitMemory() []byte {
	if e.m.memories == 0 && !e.metered {
		return e.m.sections[wasmbin.SectionMemory]
	}
	return wasmbin.AppendU32([]byte{1, 0}, e.m.memory.Min)
}

func (e *emitter) emitExports(old []byte) []byte {
	r := &wasmbin.Reader{Data: old}
	n := r.U32() + uint32(len(e.m.mutableGlobals))
	var more []byte
	for _, g := range e.m.mutableGlobals {
		more = wasmbin.AppendU32(append(wasmbin.AppendName(more, g.Name), 3), g.Index)
	}
	if e.metered {
		n++
		more = wasmbin.AppendU32(append(wasmbin.AppendName(more, MeterName), 3), uint32(e.m.globals))
	}
	if e.m.start != nil {
		n++
		more = wasmbin.AppendU32(append(wasmbin.AppendName(more, StartName), 0), *e.m.start)
	}
	out := wasmbin.AppendU32(make([]byte, 0, len(old)+len(more)+2), n)
	out = append(out, old[r.Off:]...)
	return append(out, more...)
}
