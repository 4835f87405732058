package function

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/function/assemble"
	"github.com/outboard-run/outboard/internal/function/image"
)

// scribbler is a module that does to its own state what a request tells it: words of
// what, where and how much, until the request ends. It answers with the state that it
// found: a global, a word of memory, the memory's size, and what its table holds.
func scribbler() []byte {
	i32 := []byte{assemble.I32}
	const what, where, much = 1024, 1028, 1032
	load := func(at int32) []byte { return append(assemble.I32Const(at), 0x28, 2, 0) }
	is := func(verb byte, code ...byte) []byte { // the code, for one of the words
		b := append(load(what), 0x41, verb, 0x46, 0x04, 0x40)
		return append(append(b, code...), 0x0b)
	}
	join := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	fill := join(load(where), load(much), load(much), []byte{0xfc, 11, 0})
	handle := join(
		// report: global 0, the memory's size, the table
		assemble.I32Const(2048), []byte{0x23, 0, 0x36, 2, 0},
		assemble.I32Const(2052), []byte{0x3f, 0, 0x36, 2, 0},
		assemble.I32Const(2056), []byte{0x41, 1, 0x11, 2, 0, 0x36, 2, 0},
		assemble.I32Const(2060), load(4096), []byte{0x36, 2, 0},
		assemble.I32Const(2048), []byte{0x41, 16, 0x10, 1, 0x1a},
		// for each word of the request
		[]byte{0x03, 0x40},
		assemble.I32Const(what), []byte{0x41, 12, 0x20, 0, 0x10, 0, 0x41, 12, 0x46, 0x04, 0x40},
		is(1, join(load(where), []byte{0x24, 0}, load(much), []byte{0xac, 0x24, 1}, load(much), []byte{0xb2, 0x24, 2}, load(much), []byte{0xb7, 0x24, 3})...),
		is(2, fill...),
		is(3, join(load(much), []byte{0x40, 0, 0x1a})...),
		is(4, 0x00),
		is(5, 0x03, 0x40, 0x0c, 0, 0x0b),
		is(6, 0x10, 3),
		is(7, 0x41, 9, 0x10, 2),
		[]byte{0x20, 0, 0x41, 12, 0x6a, 0x21, 0, 0x0c, 1, 0x0b, 0x0b},
		[]byte{0x41, 0},
	)
	return assemble.File(
		assemble.Types(
			assemble.Type([]byte{assemble.I32, assemble.I32, assemble.I32}, i32), // request_read
			assemble.Type([]byte{assemble.I32, assemble.I32}, i32),               // response_write
			assemble.Type(nil, i32),
			assemble.Type(i32, nil), // proc_exit
			assemble.Type(nil, nil),
		),
		assemble.Imports(
			assemble.Import("outboard", "request_read", 0, 0), assemble.Import("outboard", "response_write", 0, 1),
			assemble.Import("wasi_snapshot_preview1", "proc_exit", 0, 3),
		),
		assemble.Functions(4, 2, 2, 2, 4),
		assemble.Table(2),
		assemble.Memory(4, 64),
		assemble.Globals(
			assemble.Variable(assemble.I32, true, 0x41, 7), assemble.Variable(assemble.I64, true, 0x42, 7),
			assemble.Variable(assemble.F32, true, 0x43, 0, 0, 0x80, 0x3f), assemble.Variable(assemble.F64, true, 0x44, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f),
		),
		assemble.Exports(assemble.Export("handle", 0, 6)),
		assemble.Start(7),
		assemble.Elements(0, 4, 5),
		assemble.Code(
			assemble.Body(0x10, 3), // calls itself for ever
			assemble.Body(0x41, 11), assemble.Body(0x41, 22),
			assemble.BodyWith([]byte{assemble.I32}, handle...),
			assemble.Body(join(assemble.I32Const(4096), assemble.I32Const(99), []byte{0x36, 2, 0, 0x41, 42, 0x24, 0})...),
		),
		assemble.Data(assemble.Active(70_000, 1, 2, 3)),
	)
}

func fresh(t interface{ Fatalf(string, ...any) }, body []byte) {
	want := []uint32{42, 4, 22, 99}
	for i, w := range want {
		if got := binary.LittleEndian.Uint32(body[4*i:]); got != w {
			t.Fatalf("word %d of the state that a call found is %d, want %d", i, got, w)
		}
	}
}

// TestNothingStays makes arbitrary calls, and checks after each one that the instance
// is the image again.
func TestNothingStays(t *testing.T) {
	for name, method := range methods(t) {
		for keep, size := range map[string]int{"": 0, "-little": 8192} {
			t.Run(name+keep, func(t *testing.T) { testNothingStays(t, method, size) })
		}
	}
}

func testNothingStays(t *testing.T, method image.Method, keep int) {
	r := open(t, Options{Reset: method, KeepDirty: keep})
	f := deploy(t, r, scribbler(), Limits{Memory: 4 << 20, Fuel: 20_000})
	word := rapid.Custom(func(t *rapid.T) []byte {
		b := binary.LittleEndian.AppendUint32(nil, rapid.SampledFrom([]uint32{1, 1, 2, 2, 2, 2, 3, 3, 4, 5, 6, 7}).Draw(t, "what"))
		b = binary.LittleEndian.AppendUint32(b, rapid.Uint32Range(4096, 5<<20).Draw(t, "where"))
		return binary.LittleEndian.AppendUint32(b, rapid.Uint32Range(0, 100_000).Draw(t, "how much")>>rapid.IntRange(0, 16).Draw(t, "less"))
	})
	rapid.Check(t, func(rt *rapid.T) {
		var body []byte
		for range rapid.IntRange(0, 12).Draw(rt, "words") {
			body = append(body, word.Draw(rt, "word")...)
		}
		p, err := f.Call(t.Context(), Request{Body: body})
		if err == nil {
			fresh(rt, p.Body)
		}
		checkFresh(rt, f)
		if p, err = f.Call(t.Context(), Request{}); err != nil {
			rt.Fatalf("next call: %v", err)
		}
		fresh(rt, p.Body)
	})
	if c := f.Counts(); c.Cloned != 1 || c.Rebuilt != 0 {
		t.Errorf("got %+v", c)
	}
}

// TestClosedInstance closes an instance behind its slot's back: the next call gets
// another one.
func TestClosedInstance(t *testing.T) {
	f := deploy(t, open(t, Options{}), scribbler(), Limits{})
	for range 3 {
		p, err := f.Call(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		fresh(t, p.Body)
		_ = f.idle[0].instance.Close(t.Context())
		_, _ = f.Call(t.Context(), Request{})
	}
	if c := f.Counts(); c.Rebuilt != 3 {
		t.Errorf("got %+v", c)
	}
}
