package rewrite

import "fmt"

// An emitter writes the new file.
type emitter struct {
	m       *module
	w       walker
	metered bool
	checks  int
}

// code copies the code section and puts the checks in.
func (e *emitter) code() ([]byte, error) {
	if err := e.survey(); err != nil {
		return nil, err
	}
	old := e.m.sections[secCode]
	out := make([]byte, 0, len(old)+len(old)/8+64)
	out = appendU32(out, uint32(e.m.functions-e.m.imported+e.extra()))
	err := e.bodies(func(i int, body []byte) { out = e.body(out, i, body) })
	if e.metered {
		out = e.yield(out)
	}
	return out, err
}

// bodies walks over all functions.
func (e *emitter) bodies(each func(i int, body []byte)) error {
	r := &reader{b: e.m.sections[secCode]}
	n := 0
	if r.more() {
		n = r.count(2)
	}
	if n != e.m.functions-e.m.imported {
		return fmt.Errorf("%d bodies for %d functions", n, e.m.functions-e.m.imported)
	}
	for i := range n {
		body := r.bytes(r.count(1))
		if r.err != nil {
			return r.err
		}
		if err := e.w.walk(body); err != nil {
			return fmt.Errorf("function %d: %w", e.m.imported+i, err)
		}
		each(e.m.imported+i, body)
	}
	if r.left() > 0 {
		return fmt.Errorf("%d bytes after the end", r.left())
	}
	return nil
}

// extra is how many functions, types and globals are added.
func (e *emitter) extra() int {
	if e.metered {
		return 1
	}
	return 0
}

// yield appends a function that asks for the size Yield and stops if the host left
// the meter below zero.
func (e *emitter) yield(out []byte) []byte {
	body := []byte{
		0,                      // no locals
		0x41, 0x80, 0x80, 0x04, // i32.const 65536
		0x3f, 0x00, // memory.size
		0x6b,       // i32.sub
		0x40, 0x00, // memory.grow
		0x1a, // drop
	}
	body = appendU32(append(body, 0x23), uint32(e.m.globals)) // global.get
	body = append(body,
		0x41, 0x00, 0x48, // i32.const 0, i32.lt_s
		0x04, 0x40, 0x00, 0x0b, // if, unreachable, end
		0x0b,
	)
	return append(appendU32(out, uint32(len(body))), body...)
}

// body appends one function with its length in front.
func (e *emitter) body(out []byte, f int, body []byte) []byte {
	if e.w.free[f].all > 0 {
		e.w.checks[0].needed = false
	}
	if !e.metered || !e.w.needed() {
		out = appendU32(out, uint32(len(body)))
		return append(out, body...)
	}
	at := len(out)
	out = append(out, 0, 0, 0, 0, 0)
	local := e.m.params[e.m.kinds[f-e.m.imported]] + e.w.local.count
	out = appendU32(out, uint32(e.w.local.groups+1))
	from, code := e.w.local.at, e.w.checks[0].at
	out = append(out, body[from:code]...)
	out = append(out, 1, typeI32)
	from = code
	for _, c := range e.w.checks {
		if c.needed {
			out = append(out, body[from:c.at]...)
			if c.bulk {
				out = e.bulk(out, local)
			} else {
				out = e.check(out, c.cost(), local)
			}
			from = c.at
			e.checks++
		}
	}
	out = append(out, body[from:]...)
	putPadded(out[at:], uint32(len(out)-at-5))
	return out
}

// bulk appends the code of a check in front of an instruction whose last operand is a
// number of bytes. Few bytes are in the price of the code around it:
//
//	local = bytes
//	if local >= 1024 {
//		local = meter - local / 64
//		meter = local
//		if local >= 0 {} else { yield() }
//	}
func (e *emitter) bulk(out []byte, local uint32) []byte {
	meter := uint32(e.m.globals)
	out = appendU32(append(out, 0x22), local)             // local.tee
	out = appendU32(append(out, 0x20), local)             // local.get
	out = append(out, 0x41, 0x80, 0x08, 0x4f, 0x04, 0x40) // i32.const 1024, i32.ge_u, if
	out = appendU32(append(out, 0x23), meter)             // global.get
	out = appendU32(append(out, 0x20), local)             // local.get
	out = append(out, 0x41, 0x06, 0x76)                   // i32.const 6, i32.shr_u
	out = e.settle(out, local)
	return append(out, 0x0b)
}

// check appends the code of a check:
//
//	local = meter - cost
//	meter = local
//	if local >= 0 {} else { yield() }
func (e *emitter) check(out []byte, cost int32, local uint32) []byte {
	out = appendU32(append(out, 0x23), uint32(e.m.globals)) // global.get
	out = appendI32(append(out, 0x41), cost)                // i32.const
	return e.settle(out, local)
}

// settle appends the end of a check, after the meter and what to take off it. The way
// that does not call comes first: where both meet, the engine keeps variables where
// they are on the way that it sees first, and a call leaves none in a register.
func (e *emitter) settle(out []byte, local uint32) []byte {
	meter, yield := uint32(e.m.globals), uint32(e.m.functions)
	out = appendU32(append(out, 0x6b, 0x22), local) // i32.sub, local.tee
	out = appendU32(append(out, 0x24), meter)       // global.set
	out = appendU32(append(out, 0x20), local)       // local.get
	out = append(out, opI32Const, 0, opI32GeS, opIf, voidType, opElse)
	out = appendU32(append(out, 0x10), yield) // call
	return append(out, 0x0b)
}

// file joins the sections, old and new.
func (e *emitter) file(code []byte) []byte {
	out := make([]byte, 0, len(code)+len(code)/2)
	out = append(out, 0, 'a', 's', 'm', 1, 0, 0, 0)
	for _, id := range order {
		if body := e.section(id, code); body != nil {
			out = appendSection(out, id, body)
		}
	}
	if names := e.m.functionNames(); names != nil {
		body := appendName(nil, "name")
		out = appendSection(out, secCustom, appendSection(body, 1, names))
	}
	return out
}

func (e *emitter) section(id byte, code []byte) []byte {
	old := e.m.sections[id]
	switch id {
	case secType:
		return e.added(old, []byte{0x60, 0, 0}) // a function of nothing to nothing
	case secFunction:
		return e.added(old, appendU32(nil, uint32(e.m.types)))
	case secGlobal:
		return e.added(old, []byte{typeI32, 1, 0x41, 0, 0x0b})
	case secMemory:
		return e.memory()
	case secExport:
		return e.exports(old)
	case secStart:
		return nil
	case secCode:
		return code
	case secDataCount, secData:
		if !e.m.passive && !e.w.init {
			return nil
		}
		if id == secData && old != nil {
			return e.m.emitData()
		}
	}
	return old
}

// added returns a section with one element more at its end.
func (e *emitter) added(old, element []byte) []byte {
	if !e.metered {
		return old
	}
	if old == nil {
		return append([]byte{1}, element...)
	}
	r := &reader{b: old}
	out := appendU32(make([]byte, 0, len(old)+len(element)+1), r.u32()+1)
	out = append(out, old[r.off:]...)
	return append(out, element...)
}

// memory declares no maximum, see Result.Memory. A check needs a memory to ask.
func (e *emitter) memory() []byte {
	if e.m.memories == 0 && !e.metered {
		return e.m.sections[secMemory]
	}
	return appendU32([]byte{1, 0}, e.m.memory.Min)
}

func (e *emitter) exports(old []byte) []byte {
	r := &reader{b: old}
	n := r.u32() + uint32(len(e.m.state))
	var more []byte
	for _, g := range e.m.state {
		more = appendU32(append(appendName(more, g.Name), 3), g.Index)
	}
	if e.metered {
		n++
		more = appendU32(append(appendName(more, MeterName), 3), uint32(e.m.globals))
	}
	if e.m.start != nil {
		n++
		more = appendU32(append(appendName(more, StartName), 0), *e.m.start)
	}
	out := appendU32(make([]byte, 0, len(old)+len(more)+2), n)
	out = append(out, old[r.off:]...)
	return append(out, more...)
}
