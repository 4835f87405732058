package optimize

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "github.com/outboard-run/outboard/internal/function/assemble"
	"github.com/outboard-run/outboard/internal/wasmbin"
)

// with is a module of one function that is exported.
func with(code []byte, more ...[]byte) []byte {
	return File(slices.Concat([][]byte{Types(Type(nil, nil)), Functions(0)}, more, [][]byte{Exports(Export("f", 0, 0)), Code(Body(code...))})...)
}

func TestRefused(t *testing.T) {
	memory := Memory(1, 1)
	tests := map[string]struct {
		file []byte
		want string
	}{
		"nothing":             {nil, "not a WebAssembly module"},
		"component":           {[]byte("\x00asm\x0d\x00\x01\x00"), "a component: only core modules run here"},
		"version":             {[]byte("\x00asm\x02\x00\x00\x00"), "version 02000000"},
		"no exports":          {File(Types(Type(nil, nil)), Functions(0), Code(Body())), "exports: the module has none"},
		"imported memory":     {File(Imports(Import("env", "memory", 2, 0, 1))), "memory env.memory is imported"},
		"imported table":      {File(Imports(Import("env", "t", 1, Func, 0, 1))), "table env.t is imported"},
		"imported global":     {File(Imports(Import("env", "g", 3, I32, 1))), "mutable global env.g is imported"},
		"imported tag":        {File(Imports(Import("env", "x", 4, 0, 0))), "tag env.x is imported"},
		"table.set":           {with([]byte{0x41, 0, 0xd0, 0x70, 0x26, 0}, Table(1)), "table.set: tables are not part of an image"},
		"table.init":          {with([]byte{0xfc, 12, 0, 0}, Table(1)), "table.init: tables"},
		"elem.drop":           {with([]byte{0xfc, 13, 0}, Table(1)), "elem.drop: dropped"},
		"table.copy":          {with([]byte{0xfc, 14, 0, 0}, Table(1)), "table.copy: tables"},
		"table.grow":          {with([]byte{0xfc, 15, 0}, Table(1)), "table.grow: tables"},
		"table.fill":          {with([]byte{0xfc, 17, 0}, Table(1)), "table.fill: tables"},
		"data.drop":           {with([]byte{0xfc, 9, 0}, memory), "data.drop: dropped"},
		"vector global":       {with(nil, Globals(Variable(V128, true, 0xfd, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))), "global 0 is mutable and of type 0x7b"},
		"reference global":    {with(nil, Globals(Variable(Func, true, 0xd0, 0x70))), "global 0 is mutable and of type 0x70"},
		"memory.copy alone":   {with([]byte{0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 10, 0, 0}), "accesses a memory, and the module has none"},
		"memory.fill alone":   {with([]byte{0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 11, 0}), "accesses a memory, and the module has none"},
		"load alone":          {with([]byte{0x41, 0, 0x28, 2, 0, 0x1a}), "accesses a memory, and the module has none"},
		"memory.size alone":   {with([]byte{0x3f, 0, 0x1a}), "accesses a memory, and the module has none"},
		"unknown opcode":      {with([]byte{0xff}), "opcode 0xff is of no feature"},
		"unknown long opcode": {with([]byte{0xfc, 0xff, 1}), "opcode 0xfcff"},
		"relaxed vectors":     {with([]byte{0xfd, 0x80, 2}), "opcode 0xfd100"},
		"garbage collection":  {with([]byte{0xfb, 0, 0}), "opcode 0xfb"},
		"older exceptions":    {with([]byte{0x06, 0x40, 0x0b}), "try (the older form"},
		"reserved name":       {File(Types(Type(nil, nil)), Functions(0), Exports(Export("outboard:meter", 0, 0)), Code(Body())), `export "outboard:meter": names that begin`},
		"64 bit memory":       {File(Raw(5, []byte{1, 4, 1})), "memory with addresses of 64 bits"},
		"shared memory":       {File(Raw(5, []byte{1, 3, 1, 1})), "memory shared by threads"},
		"64 bit table":        {File(Raw(4, []byte{1, Func, 4, 1})), "table with addresses of 64 bits"},
		"two memories":        {File(Raw(5, []byte{2, 0, 1, 0, 1})), "2 memories"},
		"second memory":       {with([]byte{0x3f, 1}, memory), "several memories"},
		"load of the second":  {with([]byte{0x41, 0, 0x28, 0x40, 1, 0, 0x1a}, memory), "several memories"},
		"too much memory":     {File(Memory(1<<16+1, 0)), "4 GiB"},
		"huge table":          {File(Table(1 << 21)), "2097152 table entries"},
		"many globals":        {File(Raw(6, slices.Concat(U32(1<<20+1), bytes.Repeat([]byte{I32, 0, 0x41, 0, 0x0b}, 1<<20+1)))), "globals: 1048577 entries"},
		"many types":          {File(Raw(1, slices.Concat(U32(1<<16+1), bytes.Repeat([]byte{0x60, 0, 0}, 1<<16+1)))), "65537 types: the limit is 65536"},
		"many parameters":     {File(Raw(1, slices.Concat([]byte{1, 0x60}, U32(1001), bytes.Repeat([]byte{I32}, 1001), []byte{0}))), "a type has 1001 parameters and 0 results: the limit is 1000"},
		"many results":        {File(Raw(1, slices.Concat([]byte{1, 0x60, 0}, U32(1001), bytes.Repeat([]byte{I32}, 1001)))), "a type has 0 parameters and 1001 results: the limit is 1000"},
		"many long types":     {File(Raw(1, slices.Concat(U32(100), bytes.Repeat(slices.Concat([]byte{0x60}, U32(1000), bytes.Repeat([]byte{I32}, 1000), []byte{0}), 100)))), "too many parameters and results of all types"},
		"mutable globals":     {File(Raw(6, slices.Concat(U32(1<<16+1), bytes.Repeat([]byte{I32, 1, 0x41, 0, 0x0b}, 1<<16+1)))), "more than 65536 mutable globals"},
		"computed data":       {with(nil, memory, Globals(Variable(I32, false, 0x41, 0))), ""},
		"data by a global":    {File(memory, Exports(Export("m", 2, 0)), Raw(11, []byte{1, 0, 0x23, 0, 0x0b, 0})), "data segment with a computed offset (opcode 0x23)"},
		"data by a sum":       {File(memory, Exports(Export("m", 2, 0)), Raw(11, []byte{1, 0, 0x41, 0, 0x41, 0, 0x6a, 0x0b, 0})), "data segment with a computed offset"},
		"data without memory": {File(Exports(), Data(Active(0, 1))), "data segment without a memory"},
		"many locals":         {File(Types(Type(nil, nil)), Functions(0), Exports(Export("f", 0, 0)), Section(10, []byte{8, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, I32, 0x0b})), "local variables: the limit"},
		"the meter":           {with([]byte{0x41, 0, 0x24, 0}), "global 0 of 0"},
		"the meter read":      {with([]byte{0x23, 1, 0x1a}, Globals(Variable(I32, true, 0x41, 0))), "global 1 of 1"},
		"the meter exported":  {File(Exports(Export("m", 3, 0))), "export of item 0 of 0"},
		"the yield":           {with([]byte{0x10, 1}), "function 1 of 1"},
		"the yield's address": {with([]byte{0xd2, 1, 0x1a}), "function 1 of 1"},
		"long list":           {File(Raw(1, []byte{0xff, 0xff, 0xff, 0xff, 0x0f})), "types: list of 4294967295 elements"},
		"section too long":    {append(File(), 1, 100), "section 1"},
		"sections mixed up":   {File(Memory(1, 1), Types()), "section 1 at byte"},
		"unknown section":     {File(Raw(99, []byte{0})), "section 99"},
		"section twice":       {File(Types(), Types()), "section 1 at byte"},
		"rest of a section":   {File(Raw(1, []byte{0, 1})), "types: 1 bytes after the end"},
		"rest of a body":      {File(Types(Type(nil, nil)), Functions(0), Exports(Export("f", 0, 0)), Section(10, []byte{3, 0, 0x0b, 0x0b})), "1 bytes after the end"},
		"body without end":    {File(Types(Type(nil, nil)), Functions(0), Exports(Export("f", 0, 0)), Section(10, []byte{2, 0, 0x01})), "ends too early"},
		"bodies missing":      {File(Types(Type(nil, nil)), Functions(0, 0), Exports(Export("f", 0, 0)), Code(Body())), "1 bodies for 2 functions"},
		"long branch table":   {with([]byte{0x41, 0, 0x0e, 0xff, 0xff, 0xff, 0xff, 0x0f, 0}), "list of 4294967295 elements"},
		"number too long":     {with([]byte{0x41, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0x1a}), "does not fit in 32 bits"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Module(test.file, Options{})
			switch {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if _, err := Module(make([]byte, 101), Options{MaxSize: 100}); err == nil || !strings.Contains(err.Error(), "the limit is 100") {
		t.Errorf("size: got %v", err)
	}
}

func TestResult(t *testing.T) {
	r, err := Module(programs()["start, data and globals"], Options{})
	if err != nil {
		t.Fatal(err)
	}
	code := r.Code
	r.Code, r.Work, r.CompileCost = nil, 0, 0
	want := &Result{
		Memory:  Limits{1, 3},
		Data:    []Segment{{0, []byte{1, 2, 3, 4}}, {10, []byte{5}}, {2, []byte{9}}},
		Globals: []Global{{0, "outboard:global.0"}, {2, "outboard:global.2"}},
		Start:   true,
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m, err := parse(withoutReserved(code))
	if err != nil {
		t.Fatal(err)
	}
	if m.start != nil || m.sections[wasmbin.SectionData] != nil || m.memory.Max != pageLimit {
		t.Errorf("left in the module: start %v, data %v, memory %+v", m.start, m.sections[wasmbin.SectionData], m.memory)
	}
}

func withoutReserved(code []byte) []byte {
	return bytes.ReplaceAll(code, []byte(Reserved), []byte("shipmate_"))
}

// TestChecks counts checks: none where code surely ends soon, one for an entry and a
// loop that begins there.
func TestChecks(t *testing.T) {
	for name, want := range map[string]int{
		"factorial": 1, "mutual recursion": 2, "recursion by way of a table": 1, "sum in a loop": 1, "nested loops": 2, "loop without a branch back": 0, "small helpers": 0, "branch table": 0, "table": 1,
	} {
		r, err := Module(programs()[name], Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Checks != want {
			t.Errorf("%s: got %d checks, want %d", name, r.Checks, want)
		}
	}
}

// TestCost charges a loop for what it does.
func TestCost(t *testing.T) {
	m := &module{functions: 1}
	w := bodyScanner{m: m, entryCosts: make([]entryCost, 1)}
	loop := append([]byte{0, 0x03, 0x40}, bytes.Repeat([]byte{0x01}, 100)...) // 100 x nop
	loop = append(loop, 0x41, 0, 0x0d, 0)                                     // i32.const, br_if
	loop = append(loop, bytes.Repeat([]byte{0x01}, 1000*undercountLimit)...)
	loop = append(loop, 0x0b, 0x0b)
	if err := w.scan(loop); err != nil {
		t.Fatal(err)
	}
	if got := w.checks[1].cost(); got != 1003+1 {
		t.Errorf("got %d", got)
	}
}

// TestNames keeps the names of functions, if they are what they should be.
func TestNames(t *testing.T) {
	good := Section(1, slices.Concat(U32(0), Name("main")))
	for name, test := range map[string]struct {
		section []byte
		want    bool
	}{
		"good":        {good, true},
		"second":      {slices.Concat(Raw(0, Name("module")), good), true},
		"empty":       {nil, false},
		"long":        {Raw(1, []byte{0xff, 0xff, 0xff, 0xff, 0x0f}), false},
		"no function": {Section(1, slices.Concat(U32(7), Name("main"))), false},
		"twice":       {Section(1, slices.Concat(U32(0), Name("a")), slices.Concat(U32(0), Name("b"))), false},
	} {
		file := slices.Concat(with(nil), Raw(0, slices.Concat(Name("name"), test.section)))
		r, err := Module(file, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(r.Code, good); got != test.want {
			t.Errorf("%s: kept %v", name, got)
		}
	}
}

// TestCycles has functions call each other at random: none comes back to itself without
// a check, and what all of them call keeps its check so that others need none.
func TestCycles(t *testing.T) {
	free := 0
	rapid.Check(t, func(rt *rapid.T) {
		calls := make([][]uint32, rapid.IntRange(2, 12).Draw(rt, "functions"))
		var bodies [][]byte
		for i := range calls {
			calls[i] = rapid.SliceOfN(rapid.Uint32Range(0, uint32(len(calls)-1)), 0, 3).Draw(rt, "calls")
			var body []byte
			for _, f := range append(calls[i], 0) { // all call the first one
				body = wasmbin.AppendU32(append(body, 0x10), f)
			}
			calls[i] = append(calls[i], 0)
			bodies = append(bodies, Body(body...))
		}
		m, err := parse(File(Types(Type(nil, nil)), Functions(make([]byte, len(calls))...), Memory(1, 1), Exports(Export("f", 0, 0)), Code(bodies...)))
		if err != nil {
			rt.Fatal(err)
		}
		e := &emitter{m: m, metered: true, maxCost: DefaultMaxCompileCost, scanner: bodyScanner{m: m, entryCosts: make([]entryCost, m.functions)}}
		if err := e.assignEntryCosts(); err != nil {
			rt.Fatal(err)
		}
		for f := range calls {
			if e.scanner.entryCosts[f].upper > 0 {
				free++
			}
			if back(calls, e.scanner.entryCosts, uint32(f), uint32(f), len(calls)) {
				rt.Fatalf("function %d calls itself without a check: %v", f, calls)
			}
		}
	})
	if free < 200 {
		t.Errorf("%d functions are without a check", free)
	}
}

// back says whether a function that has no check leads to another one by way of such.
func back(calls [][]uint32, free []entryCost, from, to uint32, depth int) bool {
	if free[from].upper == 0 || depth == 0 {
		return false
	}
	return slices.ContainsFunc(calls[from], func(f uint32) bool {
		return free[f].upper > 0 && (f == to || back(calls, free, f, to, depth-1))
	})
}
