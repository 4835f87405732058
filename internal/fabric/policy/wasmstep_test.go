package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outboard-run/outboard/internal/fabric/policy/wasm"
)

// withModules is a set that finds the modules of package wasm's tests.
func withModules(t testing.TB, text string) *Set {
	t.Helper()
	s, err := ParseOptions("shop.yaml", []byte(text), Options{Descriptors: shopFiles(t), Module: testModule})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testModule(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join("wasm", "testdata", filepath.Base(name)))
}

func newBytes(n int) protoreflect.Value { return protoreflect.ValueOfBytes(make([]byte, n)) }

func TestWasm(t *testing.T) {
	type want struct {
		Code     codes.Code
		Message  string
		Metadata metadata.MD
		Info     Info
		Asked    int
	}
	user := metadata.Pairs("x-user", "ann")
	long, short := []byte("long words"), []byte("x")
	tests := map[string]struct {
		rules, more string
		visit       visit
		want        want
	}{
		"sets": {"module: guest.wasm, timeout: 1m", "", visit{metadata: user}, want{Metadata: metadata.Pairs("x-user", "ann", "x-checked", "yes"), Info: Info{Calls: 1, Acted: 1}}},
		"denies": {
			"module: guest.wasm, timeout: 1m", "",
			visit{},
			want{codes.Unauthenticated, "policy w: who are you?", nil, Info{Calls: 1, Acted: 1, Refused: 1}, 0},
		},
		"config": {"module: head.wasm, timeout: 1m, config: blue", "", visit{}, want{Metadata: metadata.Pairs("x-conf", "blue"), Info: Info{Calls: 1, Acted: 1}}},
		"payload": {
			"module: payload.wasm, timeout: 1m, payload: true", "",
			visit{payload: long},
			want{codes.InvalidArgument, "policy w: too long", nil, Info{Calls: 1, Acted: 1, Refused: 1}, 1},
		},
		"short payload":     {"module: payload.wasm, timeout: 1m, payload: true", "", visit{payload: short}, want{Info: Info{Calls: 1}, Asked: 1}},
		"payload not given": {"module: payload.wasm, timeout: 1m", "", visit{payload: long}, want{Info: Info{Calls: 1}}},
		"endless":           {"module: loop.wasm, timeout: 10s", "", visit{}, want{codes.Internal, "policy w: the module took too many steps", nil, Info{Calls: 1, Acted: 1, Failed: 1}, 0}},
		"slow":              {"module: fill.wasm, timeout: 5ms, steps: 1000000000", "", visit{}, want{codes.Internal, "policy w: the module took too long", nil, Info{Calls: 1, Acted: 1, Failed: 1}, 0}},
		"trap":              {"module: trap.wasm, timeout: 1m", "", visit{}, want{codes.Internal, "policy w: the module trapped: wasm error: unreachable", nil, Info{Calls: 1, Acted: 1, Failed: 1}, 0}},
		"trap, let pass":    {"module: trap.wasm, timeout: 1m", "failure: allow, ", visit{}, want{Info: Info{Calls: 1, Failed: 1}}},
		"response":          {"module: response.wasm, timeout: 1m", "", visit{}, want{Info: Info{Calls: 1}}},
		"trap in response":  {"module: response.wasm, timeout: 1m", "", visit{err: status.Error(codes.Internal, "")}, want{Info: Info{Calls: 1, Failed: 1}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rules := test.rules
			if !strings.Contains(rules, "timeout") {
				rules += ", timeout: 10s" // a busy machine needs more than the default
			}
			s := withModules(t, "policies: [{name: w, "+test.more+"wasm: {"+rules+"}}]")
			x, err := test.visit.run(s)
			info := s.Policies()[0]
			got := want{code(err), status.Convert(err).Message(), x.Head.Metadata, Info{
				Calls: info.Calls, Acted: info.Acted, Refused: info.Refused, Failed: info.Failed,
			}, test.visit.asked}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

// TestWasmUndone lets a module set metadata and then trap: nothing of it stays.
func TestWasmDoesNotHalf(t *testing.T) {
	s := withModules(t, "policies: [{name: w, failure: allow, wasm: {module: sets-and-traps.wasm, timeout: 10s}}]")
	x, err := (&visit{metadata: metadata.Pairs("a", "b")}).run(s)
	if err != nil || !cmp.Equal(x.Head.Metadata, metadata.Pairs("a", "b")) {
		t.Errorf("got %v, %v", x.Head.Metadata, err)
	}
}

func TestWasmAfterRewrite(t *testing.T) {
	s := withModules(t, `
policies:
- {name: cut, methods: [Place], rewrite: {request: {remove: [user]}}}
- {name: w, wasm: {module: payload.wasm, payload: true, timeout: 10s}}
`)
	if _, err := (&visit{payload: encoded(t, "Order", `user: "long name"`)}).run(s); err != nil {
		t.Errorf("the module saw the request from before its change: %v", err)
	}
}

// TestInline puts modules into files, in all the ways that they may be named.
func TestInline(t *testing.T) {
	for name, member := range map[string]string{
		"flow": "{module: guest.wasm, config: x}", "quoted": `{config: "ü", module: "guest.wasm"}`, "single": "{module: 'guest.wasm' }",
		"block": "\n    module: guest.wasm  # a comment\n    config: x",
	} {
		t.Run(name, func(t *testing.T) {
			text := "policies:\n- name: a\n  wasm: " + member + "\n- {name: b, wasm: {module: response.wasm}}\n- {name: c, when: true, timeout: 1x}\n"
			inlined, err := Inline("f", []byte(text), testModule)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse("f", inlined, nil)
			want := fmt.Sprintf("f:%d:34: \"1x\" is no time: write 250ms or 1.5s; a day at most", strings.Count(text, "\n"))
			if err == nil || err.Error() != want {
				t.Fatalf("got %v, want %s, of\n%s", err, want, inlined)
			}
			s, err := Parse("f", []byte(strings.Replace(string(inlined), "1x", "1s", 1)), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := (&visit{}).run(s); code(err) != codes.Unauthenticated {
				t.Errorf("the module did not judge: %v", err)
			}
		})
	}
}

func TestInlineErrors(t *testing.T) {
	for text, want := range map[string]string{
		"policies: [{wasm: {module: none.wasm}}]":         `f:1:28: module "none.wasm": open wasm/testdata/none.wasm: no such file or directory`,
		"policies: [{wasm: {module:\n guest.wasm}}]":      `f:2:2: module "guest.wasm": ` + errWritten.Error(),
		`policies: [{wasm: {module: "guest\u002ewasm"}}]`: `f:1:28: module "guest.wasm": ` + errWritten.Error(),
		"policies: [": "f:1:1: this is no YAML: did not find expected node content",
	} {
		if _, err := Inline("f", []byte(text), testModule); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestModulesAreShared parses a file twice: its modules are compiled once, and are
// forgotten when no set has them.
func TestModulesAreShared(t *testing.T) {
	cache := &Modules{}
	module := func(text string) *wasm.Module {
		s, err := ParseOptions("f", []byte("policies: [{name: a, wasm: {module: guest.wasm"+text+"}}]"), Options{Module: testModule, Modules: cache})
		if err != nil {
			t.Fatal(err)
		}
		return s.policies[0].step.(*wasmStep).module
	}
	first := module("")
	if module("") != first {
		t.Error("the same module was compiled again")
	}
	if module(", memory: 2MiB") == first {
		t.Error("other limits, and the same module")
	}
	runtime.GC()
	runtime.GC()
	module(", memory: 3MiB")
	if n := len(cache.compiled); n != 1 {
		t.Errorf("%d modules are remembered, want 1", n)
	}
}
