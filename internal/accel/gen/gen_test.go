package gen

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const small = `
api toy t
headers toy.h
table toy.h _toy_dispatch
driver libtoy.so
kind t_queue queue T_INVALID_QUEUE
kind t_event event T_INVALID_EVENT
kind t_mem mem T_INVALID_MEM
type u32 t_uint
type i32 t_int
type u64 size_t
`

func TestParseTreatments(t *testing.T) {
	api, err := Parse(small + `
call t_int tCopy 1.0 early auto command T_COPY
	t_queue queue
	t_mem from : reads
	t_mem to : writes
	size_t size
	const void* pattern : bytes pattern_size
	size_t pattern_size
	t_uint num_events : count
	const t_event* events : handles num_events null
	t_event* event : new
`)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Name   string
		T      Treatment
		Access string
		Null   bool
	}
	var got []row
	for _, p := range api.Calls[0].Params {
		got = append(got, row{p.Name, p.Treatment, p.Access, p.Null})
	}
	want := []row{
		{"queue", Handle, "", false},
		{"from", Handle, "reads", false},
		{"to", Handle, "writes", false},
		{"size", Value, "", false},
		{"pattern", Bytes, "", false},
		{"pattern_size", Count, "", false}, // the bytes' own count says it
		{"num_events", Count, "", false},
		{"events", Handles, "", true},
		{"event", New, "", false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseErrorsNameTheLine(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"unknown statement":          {"frobnicate x\n", `line 13: unknown statement "frobnicate"`},
		"stray parameter":            {"\tt_mem x\n", "a parameter needs a call above it"},
		"unknown answer":             {"call t_int tX 1.0 perhaps\n", `unknown answer "perhaps"`},
		"unknown type":               {"call t_int tX 1.0 early\n\tt_strange x\n", "its type does not say how it travels"},
		"unknown treatment":          {"call t_int tX 1.0 early\n\tvoid* x : teleport\n", `unknown treatment "teleport"`},
		"missing count":              {"call t_int tX 1.0 early\n\tconst t_mem* x : handles n\n", `no parameter "n" to count by`},
		"twice":                      {"call t_int tX 1.0 local\ncall t_int tX 1.0 local\n", "described on line 13 already"},
		"wait for nothing":           {"call t_int tX 1.0 wait(blocking)\n\tt_mem m\n", `no parameter "blocking" to wait for`},
		"auto without queue command": {"call t_int tX 1.0 early auto\n\tt_queue q\n", "auto is for early commands"},
		"unknown form":               {"facts tX word T_A\n", `unknown form "word"`},
		"facts of nothing":           {"call t_int tX 1.0 local\nfacts tX 4 T_A\n", "no message, and no call that is answered from a cache"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(small + "\n" + tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// A description that has drifted from the real ABI does not generate.
func TestHeadersCatchDrift(t *testing.T) {
	const dir = "/usr/include"
	raw, err := os.ReadFile("../opencl/opencl.api")
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) error {
		api, err := Parse(text)
		if err != nil {
			return err
		}
		_, err = api.ReadHeaders(dir)
		return err
	}
	text := string(raw)
	if err := read(text); err != nil {
		t.Fatalf("the description as it is: %v", err)
	}
	tests := map[string]struct{ from, to, want string }{
		"renamed parameter": {"\tcl_bool enable\n", "\tcl_bool enabled\n", "clSetCommandQueueProperty has the parameters"},
		"missing function":  {"call cl_int clUnloadCompiler 1.0 local\n", "", "clUnloadCompiler is in the headers but not described"},
		"invented function": {"call cl_int clUnloadCompiler 1.0 local\n", "call cl_int clUnloadCompiler 1.0 local\ncall cl_int clDream 1.0 local\n", "clDream is described but not in the headers"},
		"wrong type":        {"\tcl_command_queue_properties properties\n\tcl_bool enable", "\tcl_bool properties\n\tcl_bool enable", "compare with the headers"},
		"wrong width":       {"type u64 size_t ", "type u32 size_t ", "size_t is not u32"},
		"unknown constant":  {"CL_COMMAND_FILL_BUFFER", "CL_COMMAND_FULL_BUFFER", "CL_COMMAND_FULL_BUFFER is no constant"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(text, tt.from) {
				t.Fatalf("the description has no %q", tt.from)
			}
			err := read(strings.Replace(text, tt.from, tt.to, 1))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// The committed files are those that the description generates.
func TestGeneratedIsCurrent(t *testing.T) {
	raw, err := os.ReadFile("../opencl/opencl.api")
	if err != nil {
		t.Fatal(err)
	}
	api, err := Parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	headers, err := api.ReadHeaders("/usr/include")
	if err != nil {
		t.Fatal(err)
	}
	files, err := api.Go(headers.Constants)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		compare(t, "../opencl/"+name, want)
	}
	for name, want := range api.C(headers.Table) {
		compare(t, "../../../cmd/libopencl/"+name, want)
	}
	client, err := api.Client("compute", clientCalls(t))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "../compute/zz_messages.go", client)
	compare(t, "../../../docs/opencl.md", api.Docs("How each OpenCL function is forwarded"))
}

// clientCalls returns the calls that the client in Go names in its go:generate line.
func clientCalls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../compute/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), " -calls ")
	line, _, _ := strings.Cut(after, "\n")
	if !ok || line == "" {
		t.Fatal("the package generates nothing")
	}
	return strings.Split(line, ",")
}

func TestClientNamesWhatIsMissing(t *testing.T) {
	api, err := Parse(small + "call t_int tX 1.0 early\n\tt_mem m\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = api.Client("toy", []string{"tX", "tY"}); err == nil || !strings.Contains(err.Error(), "tY: nothing of that name") {
		t.Errorf("got error %v, want one that names tY", err)
	}
}

func compare(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is old: run `make generate`\n%s", path, diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(small)
	f.Add(small + "call t_int tX 1.0 early\n\tvoid* x : bulk in\n+ y : out bytes\n")
	f.Add("kind\ncall\n\t: \n")
	f.Fuzz(func(t *testing.T, text string) {
		api, err := Parse(text)
		if (api == nil) == (err == nil) {
			t.Errorf("got %v and error %v", api, err)
		}
	})
}
