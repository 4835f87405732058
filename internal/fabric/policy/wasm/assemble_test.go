package wasm

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// An assembly is a module for tests. Its functions are numbered from 5, behind
// get_head (0), get_metadata, set_metadata, get_payload and deny (4); words are in memory from 1024, in
// slots of 32 bytes.
type assembly struct {
	functions map[string]string // exported name to instructions, in words below
	words     []string
	globals   int // mutable i32
	memory    byte
	raw       bool // functions are instructions as they are
}

func lengthy(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }

func part(id byte, body ...byte) []byte { return append([]byte{id}, lengthy(body)...) }

func (a *assembly) bytes() []byte {
	names := []string{"on_request", "on_response"}
	if a.functions["on_response"] == "" {
		names = names[:1]
	}
	out := []byte(wasmbin.Preamble)
	// Types: of functions of 4 and 3 i32 with a result, of 3, none and 1 without.
	out = append(out, part(1, 5, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 3, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 3, 0x7f, 0x7f, 0x7f, 0,
		0x60, 0, 0, 0x60, 1, 0x7f, 0)...)
	imports := []byte{5}
	for i, name := range []string{"get_head", "get_metadata", "set_metadata", "get_payload", "deny"} {
		imports = append(imports, lengthy([]byte("outboard"))...)
		imports = append(imports, lengthy([]byte(name))...)
		imports = append(imports, 0, []byte{0, 0, 0, 1, 2}[i])
	}
	out = append(out, part(2, imports...)...)
	functions, exports, code := []byte{byte(len(names))}, []byte{byte(len(names) + 1)}, []byte{byte(len(names))}
	exports = append(append(exports, lengthy([]byte("memory"))...), 2, 0)
	for i, name := range names {
		functions = append(functions, byte(3+i))
		exports = append(append(exports, lengthy([]byte(name))...), 0, byte(5+i))
		body := append([]byte{1, 2, 0x7f}, a.instructions(name)...)
		code = append(code, lengthy(append(body, wasmbin.OpEnd))...)
	}
	out = append(out, part(3, functions...)...)
	out = append(out, part(5, 1, 0, max(a.memory, 1))...)
	if a.globals > 0 {
		globals := []byte{byte(a.globals)}
		for range a.globals {
			globals = append(globals, 0x7f, 1, 0x41, 0, wasmbin.OpEnd)
		}
		out = append(out, part(6, globals...)...)
	}
	out = append(out, part(7, exports...)...)
	out = append(out, part(10, code...)...)
	data := []byte{byte(len(a.words))}
	for i, word := range a.words {
		data = wasmbin.AppendSigned(append(data, 0, 0x41), int64(1024+32*i))
		data = append(append(data, wasmbin.OpEnd), lengthy([]byte(word))...)
	}
	return append(out, part(11, data...)...)
}

func (a *assembly) instructions(name string) []byte {
	if a.raw {
		return []byte(a.functions[name])
	}
	return assemble(a.functions[name])
}

// assemble makes instructions of words: an instruction's name, or a number for
// i32.const, or :N for an immediate byte.
func assemble(text string) []byte {
	names := map[string]byte{
		"unreachable": 0x00, "block": 0x02, "loop": 0x03, "if": 0x04, "else": 0x05, "end": 0x0b, "br": 0x0c, "br_if": 0x0d, "call": 0x10,
		"drop": 0x1a, "local.get": 0x20, "local.set": 0x21, "global.get": 0x23, "global.set": 0x24, "i32.load": 0x28, "i32.store": 0x36,
		"memory.grow": 0x40, "i32.eqz": 0x45, "i32.eq": 0x46, "i32.lt_s": 0x48, "i32.gt_s": 0x4a, "i32.add": 0x6a, "prefixed": 0xfc,
	}
	var out []byte
	for word := range strings.FieldsSeq(text) {
		if op, ok := names[word]; ok {
			out = append(out, op)
			continue
		}
		number, immediate := strings.CutPrefix(word, ":")
		var v int64
		negative := strings.HasPrefix(number, "-")
		for _, digit := range strings.TrimPrefix(number, "-") {
			v = v*10 + int64(digit-'0')
		}
		if negative {
			v = -v
		}
		if immediate {
			out = append(out, byte(v))
			continue
		}
		out = wasmbin.AppendSigned(append(out, 0x41), v)
	}
	return out
}

// assemblies are the modules of the tests, of this package and of policy.
func assemblies() map[string]*assembly {
	request := func(text string, words ...string) *assembly {
		return &assembly{functions: map[string]string{"on_request": text}, words: words}
	}
	counter := request(`global.get :0 1 i32.add global.set :0
		0 0 i32.load :2 :0 1 i32.add i32.store :2 :0
		global.get :0 1 i32.gt_s if :64 13 1024 4 call :4 end
		0 i32.load :2 :0 1 i32.gt_s if :64 13 1024 4 call :4 end`, "kept")
	counter.globals = 1
	response := request(`1 drop`)
	response.functions["on_response"] = `local.get :0 13 i32.eq if :64 unreachable end`
	return map[string]*assembly{
		"allow": request("1 drop"),
		"guest": request(`1024 6 4096 64 call :1 0 i32.lt_s if :64 16 1056 12 call :4
			else 1088 9 1120 3 call :2 drop end`, "x-user", "who are you?", "x-checked", "yes"),
		"head":           request(`1024 6 4096 64 call :0 local.set :0 1056 6 4096 local.get :0 call :2 drop`, "config", "x-conf"),
		"loop":           request("loop :64 br :0 end"),
		"recurse":        request("call :5"),
		"grow":           request("loop :64 1 memory.grow :0 -1 i32.gt_s br_if :0 end unreachable"),
		"grows":          request("1 memory.grow :0 drop"),
		"outside":        request("7 -256 100 call :4"),
		"trap":           request("unreachable"),
		"asks":           request("loop :64 1024 6 4096 64 call :0 drop br :0 end", "tenant"),
		"fill":           {functions: map[string]string{"on_request": "loop :64 0 0 4128768 prefixed :11 :0 br :0 end"}, memory: 63},
		"payload":        request(`4096 4 0 call :3 3 i32.gt_s if :64 3 1024 8 call :4 end`, "too long"),
		"counter":        counter,
		"response":       response,
		"sets-and-traps": request("1024 9 1056 3 call :2 drop unreachable", "x-checked", "yes"),
	}
}

// TestAssemblies holds the files that other tests read to what is written here.
func TestAssemblies(t *testing.T) {
	for name, a := range assemblies() {
		file := filepath.Join("testdata", name+".wasm")
		if *rewrite {
			if err := os.WriteFile(file, a.bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, a.bytes()); diff != "" {
			t.Errorf("%s: run go test -rewrite (-got +want):\n%s", name, diff)
		}
	}
}
