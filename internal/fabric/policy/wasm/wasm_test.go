package wasm

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// fake is a call of a test.
type fake struct {
	head, metadata map[string]string
	payload        []byte
	asked          int
}

func (f *fake) Head(name string) (string, bool) { v, ok := f.head[name]; return v, ok }

func (f *fake) Metadata(key string) (string, bool) { v, ok := f.metadata[key]; return v, ok }

func (f *fake) SetMetadata(key, value string) bool {
	if strings.HasPrefix(key, "grpc-") {
		return false
	}
	if f.metadata == nil {
		f.metadata = map[string]string{}
	}
	f.metadata[key] = value
	return true
}

func (f *fake) Payload() ([]byte, error) {
	f.asked++
	if f.payload == nil {
		return nil, errors.New("none")
	}
	return f.payload, nil
}

func compiled(t testing.TB, name string, o Options) *Module {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute // the machine may be busy
	}
	m, err := Compile(assemblies()[name].bytes(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRequest(t *testing.T) {
	type want struct {
		Verdict  Verdict
		Error    string
		Metadata map[string]string
		Asked    int
	}
	user := map[string]string{"x-user": "ann"}
	tests := map[string]struct {
		module  string
		options Options
		call    fake
		want    want
	}{
		"lets pass":        {"allow", Options{}, fake{}, want{}},
		"denies":           {"guest", Options{}, fake{}, want{Verdict: Verdict{true, codes.Unauthenticated, "who are you?"}}},
		"sets metadata":    {"guest", Options{}, fake{metadata: user}, want{Metadata: map[string]string{"x-user": "ann", "x-checked": "yes"}}},
		"reads the head":   {"head", Options{}, fake{head: map[string]string{"config": "blue"}}, want{Metadata: map[string]string{"x-conf": "blue"}}},
		"reads payload":    {"payload", Options{}, fake{payload: []byte("long words")}, want{Verdict: Verdict{true, codes.InvalidArgument, "too long"}, Asked: 1}},
		"no payload":       {"payload", Options{}, fake{}, want{Asked: 1}},
		"empty payload":    {"payload", Options{}, fake{payload: []byte{}}, want{Asked: 1}},
		"endless loop":     {"loop", Options{Timeout: time.Minute}, fake{}, want{Error: "the module took too many steps"}},
		"endless calls":    {"recurse", Options{Timeout: time.Minute, Steps: 1000}, fake{}, want{Error: "the module took too many steps"}},
		"deep calls":       {"recurse", Options{Timeout: time.Minute, Steps: 1 << 40}, fake{}, want{Error: "the module trapped: stack overflow"}},
		"too long":         {"fill", Options{Timeout: 20 * time.Millisecond, Steps: 1 << 60}, fake{}, want{Error: "the module took too long"}},
		"greedy":           {"grow", Options{Memory: 4}, fake{}, want{Error: "the module trapped: wasm error: unreachable"}},
		"trap":             {"trap", Options{}, fake{}, want{Error: "the module trapped: wasm error: unreachable"}},
		"outside address":  {"outside", Options{}, fake{}, want{Error: "the module trapped: an address outside of memory (recovered by wazero)"}},
		"endless question": {"asks", Options{Timeout: time.Minute, Steps: 1 << 60}, fake{}, want{Error: "the module trapped: more than 10000 calls of the host's functions (recovered by wazero)"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v, err := compiled(t, test.module, test.options).Request(&test.call)
			got := want{Verdict: v, Metadata: test.call.metadata, Asked: test.call.asked}
			if err != nil {
				got.Error = err.Error()
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

// TestNothingIsKept calls one instance again and again: it denies when it finds what
// it left in its memory and its global.
func TestNothingIsKept(t *testing.T) {
	m := compiled(t, "counter", Options{Instances: 1})
	for range 3 {
		if v, err := m.Request(&fake{}); v.Denied || err != nil {
			t.Fatalf("got %v, %v: something was kept", v, err)
		}
		if len(m.idle) != 1 {
			t.Fatalf("%d instances are kept, want 1: the test needs the same one", len(m.idle))
		}
	}
}

func TestStepsComeBack(t *testing.T) {
	m := compiled(t, "guest", Options{Steps: 40})
	for range 10 {
		if _, err := m.Request(&fake{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGrownIsThrownAway(t *testing.T) {
	m := compiled(t, "grows", Options{})
	if _, err := m.Request(&fake{}); err != nil {
		t.Fatal(err)
	}
	if len(m.idle) != 0 {
		t.Error("an instance with more memory than at its start is kept")
	}
}

func TestResponse(t *testing.T) {
	m := compiled(t, "response", Options{})
	if err := m.Response(&fake{}, codes.OK); err != nil {
		t.Error(err)
	}
	if err := m.Response(&fake{}, codes.Internal); err == nil {
		t.Error("the module that traps for INTERNAL did not")
	}
	if !m.Responds() || compiled(t, "allow", Options{}).Responds() {
		t.Error("Responds does not say which module has on_response")
	}
}

func TestTogether(t *testing.T) {
	m := compiled(t, "guest", Options{Instances: 2})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 50 {
				c := &fake{}
				if i%2 == 0 {
					c.metadata = map[string]string{"x-user": "ann"}
				}
				if v, err := m.Request(c); err != nil || v.Denied != (i%2 == 1) {
					t.Errorf("got %v, %v", v, err)
				}
			}
		})
	}
	group.Wait()
	if len(m.idle) > 2 {
		t.Errorf("%d instances are kept, want 2 at most", len(m.idle))
	}
}

func TestCompileErrors(t *testing.T) {
	table := assemblies()["allow"]
	table.functions["on_request"] = "prefixed :13 :0" // elem.drop
	vector := assemblies()["allow"]
	vector.functions["on_request"] = ":253 :98" // i8x16.popcnt
	tests := map[string]struct {
		code []byte
		want string
	}{
		"no module":   {[]byte("hello"), "not a WebAssembly module: it does not begin with \\0asm"},
		"short":       {assemblies()["guest"].bytes()[:40], "section 2 at byte 39: ends too early"},
		"empty":       {[]byte(wasmbin.Preamble), "the module exports no function on_request"},
		"elem.drop":   {table.bytes(), "function 0: instruction 0xfc0d is not allowed"},
		"vectors":     {vector.bytes(), "function 0: instruction 0xfd62 is not allowed"},
		"much memory": {(&assembly{functions: map[string]string{"on_request": "1 drop"}, memory: 100}).bytes(), "section memory: min 100 pages (6 Mi) over limit of 16 pages (1 Mi)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(test.code, Options{Memory: 16})
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
