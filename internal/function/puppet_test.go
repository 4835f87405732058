package function

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/assemble"
)

// A puppet is a module that calls what its request tells it to. It is the hostile guest
// of these tests: whatever a guest can say to the host, a script can have it say.
//
// A request is steps of four words, what and three arguments, until the step "end"; any
// bytes may follow. What each step brought is kept as 64 bits, from puppetResults on.
const (
	puppetStep    = 1024
	puppetResults = 8192
	puppetScratch = 32 << 10 // steps may use what lies from here on
	puppetWindow  = 128 << 10
	puppetSize    = 128 << 10 // of the window
	puppetEnd     = 255
)

// puppetOp is a step that a puppet knows. Those with code are its own, the others are
// imports.
type puppetOp struct {
	name   string
	params int
	result byte // 0 for none
	code   []byte
}

// nnOp begins the names of the steps that import from wasi-nn. A step has three arguments: those that
// follow are puppetWritten, where get_output writes how much it wrote, and its buffer's size.
const (
	nnOp          = "nn:"
	textOp        = "text:" // from outboard_text; start writes to puppetWritten
	puppetWritten = puppetScratch - 8
)

func puppetOps() []puppetOp {
	const a, b, c = puppetStep + 4, puppetStep + 8, puppetStep + 12
	return []puppetOp{
		{"request_size", 0, assemble.I32, nil},
		{"request_read", 3, assemble.I32, nil},
		{"response_write", 2, assemble.I32, nil},
		{"request_offset", 0, assemble.I64, nil},
		{"response_place", 2, assemble.I32, nil},
		{"arena_alloc", 1, assemble.I32, nil},
		{"import", 2, assemble.I32, nil},
		{"drop", 1, 0, nil},
		{"result_size", 0, assemble.I32, nil},
		{"result_read", 3, assemble.I32, nil},
		{"call", 3, assemble.I32, nil},
		{"secret", 1, assemble.I32, nil},
		{"bucket_get", 3, assemble.I64, nil},
		{"bucket_txn", 3, assemble.I32, nil},
		{"arena_map", 1, assemble.I32, nil},
		{"device_info", 1, assemble.I32, nil},
		{"device_do", 3, assemble.I32, nil},
		{"meta", 2, assemble.I32, nil},
		{nnOp + "load_by_name", 3, assemble.I32, nil},
		{nnOp + "init_execution_context", 2, assemble.I32, nil},
		{nnOp + "set_input", 3, assemble.I32, nil},
		{nnOp + "compute", 1, assemble.I32, nil},
		{nnOp + "get_output", 5, assemble.I32, nil},
		{textOp + "start", 4, assemble.I32, nil},
		{textOp + "next", 2, assemble.I32, nil},
		{textOp + "end", 1, assemble.I32, nil},
		{"load", 0, assemble.I32, slices.Concat(loadAt(a), []byte{0x28, 0, 0})},
		{"store", 0, 0, slices.Concat(loadAt(a), loadAt(b), []byte{0x36, 0, 0})},
		{"fill", 0, 0, slices.Concat(loadAt(a), loadAt(b), loadAt(c), []byte{0xfc, 11, 0})},
		{"copy", 0, 0, slices.Concat(loadAt(a), loadAt(b), loadAt(c), []byte{0xfc, 10, 0, 0})},
		{"grow", 0, assemble.I32, slices.Concat(loadAt(a), []byte{0x40, 0})},
		{"trap", 0, 0, []byte{0x00}},
		{"back", 0, 0, slices.Concat(assemble.I32Const(0), []byte{0x21, 0})}, // to the first step
		{"fail", 0, assemble.I32, slices.Concat(loadAt(a), []byte{0x0f})},
	}
}

func loadAt(at int32) []byte { return append(assemble.I32Const(at), 0x28, 2, 0) }

// puppet builds the module. Its window is where outboard_arena says.
func puppet(window int32) []byte {
	ops := puppetOps()
	types := [][]byte{assemble.Type(nil, []byte{assemble.I32}), assemble.Type([]byte{assemble.I32}, []byte{assemble.I32})}
	var imports [][]byte
	imported := byte(0)
	for _, op := range ops {
		if op.code != nil {
			continue
		}
		module, name := "outboard", op.name
		if nn, ok := strings.CutPrefix(name, nnOp); ok {
			module, name = nnModule, nn
		}
		if text, ok := strings.CutPrefix(name, textOp); ok {
			module, name = textModule, text
		}
		imports = append(imports, assemble.Import(module, name, 0, byte(len(types))))
		var results []byte
		if op.result != 0 {
			results = []byte{op.result}
		}
		types = append(types, assemble.Type(slices.Repeat([]byte{assemble.I32}, op.params), results))
		imported++
	}
	return assemble.File(
		assemble.Types(types...), assemble.Imports(imports...),
		assemble.Functions(0, 1), assemble.Memory(4, 16),
		assemble.Globals(assemble.Variable(assemble.I32, true, assemble.I32Const(puppetResults)...)),
		assemble.Exports(assemble.Export("handle", 0, uint32(imported)), assemble.Export(windowName, 0, uint32(imported)+1), assemble.Export("memory", 2, 0)),
		assemble.Code(
			assemble.BodyWith([]byte{assemble.I32}, puppetCode(ops)...),
			assemble.Body(assemble.I32Const(window)...),
		),
	)
}

func puppetCode(ops []puppetOp) []byte {
	code := slices.Concat([]byte{0x03, 0x40}, assemble.I32Const(puppetStep), []byte{0x41, 16, 0x20, 0}, callTo(1), []byte{0x41, 16, 0x46, 0x04, 0x40})
	code = slices.Concat(code, []byte{0x20, 0, 0x41, 16, 0x6a, 0x21, 0}) // the next step
	imported := byte(0)
	for n, op := range ops {
		body := op.code
		if body == nil {
			for p := range op.params {
				if p < 3 {
					body = append(body, loadAt(int32(puppetStep+4+4*p))...)
				} else {
					body = append(body, assemble.I32Const(puppetWritten)...)
				}
			}
			body = append(body, callTo(imported)...)
			imported++
		}
		code = slices.Concat(code, loadAt(puppetStep), assemble.I32Const(int32(n)), []byte{0x46, 0x04, 0x40, 0x23, 0}, keep(op, body), []byte{0x0b})
	}
	// go on unless it was the end
	code = slices.Concat(code, []byte{0x23, 0, 0x41, 8, 0x6a, 0x24, 0}, loadAt(puppetStep), assemble.I32Const(puppetEnd), []byte{0x47, 0x0d, 1, 0x0b, 0x0b})
	return append(code, 0x41, 0)
}

func callTo(f byte) []byte { return []byte{0x10, f} }

// keep stores what a step brings where the global points.
func keep(op puppetOp, body []byte) []byte {
	switch op.result {
	case 0:
		return slices.Concat(body, []byte{0x42, 0, 0x37, 3, 0})
	case assemble.I32:
		return slices.Concat(body, []byte{0xac, 0x37, 3, 0})
	}
	return slices.Concat(body, []byte{0x37, 3, 0})
}

// script is a request of a puppet.
type script struct {
	steps [][4]uint32
	blob  []byte
	texts []int // steps that read from the blob
	free  uint32
}

func opNumber(name string) uint32 {
	return uint32(slices.IndexFunc(puppetOps(), func(o puppetOp) bool { return o.name == name }))
}

// do adds a step and returns the number of its result.
func (s *script) do(name string, args ...uint32) int {
	step := [4]uint32{opNumber(name)}
	copy(step[1:], args)
	s.steps = append(s.steps, step)
	return len(s.steps) - 1
}

// text brings bytes into the puppet's memory, and returns where and how many.
func (s *script) text(b string) (at, size uint32) {
	at = puppetScratch + s.free
	s.free += uint32(len(b)+15) &^ 15
	s.texts = append(s.texts, s.do("request_read", at, uint32(len(b)), uint32(len(s.blob))))
	s.blob = append(s.blob, b...)
	return at, uint32(len(b))
}

// body is the request. The last steps answer with the results.
func (s *script) body() []byte {
	steps := slices.Clone(s.steps)
	begin := uint32(16 * (len(steps) + 2))
	for _, n := range s.texts {
		steps[n][3] += begin
	}
	steps = append(steps, [4]uint32{opNumber("response_write"), puppetResults, uint32(8 * len(steps))}, [4]uint32{puppetEnd})
	var b []byte
	for _, step := range steps {
		for _, word := range step {
			b = binary.LittleEndian.AppendUint32(b, word)
		}
	}
	return append(b, s.blob...)
}

// results reads a puppet's answer.
func results(body []byte) []int64 {
	var all []int64
	for len(body) >= 8 {
		all = append(all, int64(binary.LittleEndian.Uint64(body)))
		body = body[8:]
	}
	return all
}

// performer is a test, one of rapid's among them.
type performer interface {
	Helper()
	Fatal(args ...any)
	Context() context.Context
}

// perform has a puppet do a script.
func perform(t performer, f *Function, s *script, q Request) ([]int64, Response) {
	t.Helper()
	q.Body = s.body()
	p, err := f.Call(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return results(p.Body), p
}

func deployPuppet(t testing.TB, r *Runtime, l Limits) *Function {
	t.Helper()
	f, err := r.Deploy(context.Background(), puppet(puppetWindow), Settings{Name: "app/puppet", Limits: l, Window: puppetSize})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newArena(t testing.TB, size outboard.Bytes) *Arena {
	t.Helper()
	a, err := NewArena(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}
