//go:build conformance

package optimize

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// specificationTests returns the folders with the tests of the WebAssembly specification, versions 1
// and 2, in the source of the engine, whose version go.mod pins.
func specificationTests(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	return []string{filepath.Join(root, "v1", "testdata"), filepath.Join(root, "v2", "testdata")}
}

// specCommand is a command of a test file, as wast2json writes it.
type specCommand struct {
	Type, Filename, Name, Text string
	Line                       int
	Action                     struct {
		Type, Field, Module string
		Args                []specValue
	}
	Expected []specValue
}

// specValue is a number as the decimal form of its bits, or a kind of NaN.
type specValue struct {
	Type  string
	Value json.RawMessage
}

// text returns the value, and false for vectors and references.
func (v specValue) text() (string, bool) {
	var text string
	known := v.Type == "i32" || v.Type == "i64" || v.Type == "f32" || v.Type == "f64"
	return text, known && json.Unmarshal(v.Value, &text) == nil
}

// bits returns a number's bits as the engine passes them. Signed decimal forms occur as well.
func (v specValue) bits() (bits uint64, ok bool) {
	text, ok := v.text()
	if !ok {
		return 0, false
	}
	bits, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		signed, signedErr := strconv.ParseInt(text, 10, 64)
		bits, err = uint64(signed), signedErr
	}
	return bits, err == nil
}

// matches reports whether a result is the expected value.
func (v specValue) matches(got uint64) bool {
	text, _ := v.text()
	nan := strings.HasPrefix(text, "nan:")
	switch {
	case nan && v.Type == "f32":
		return math.IsNaN(float64(math.Float32frombits(uint32(got))))
	case nan:
		return math.IsNaN(math.Float64frombits(got))
	}
	want, _ := v.bits()
	if strings.HasSuffix(v.Type, "32") {
		return uint32(got) == uint32(want)
	}
	return got == want
}

// specRun runs one test file.
type specRun struct {
	runtime wazero.Runtime
	folder  string
	module  api.Module // nil: the module was refused, or imports something
	held    int        // the assertions that hold
}

// instantiate makes the module the current one, unless Module refuses it or it needs imports.
func (s *specRun) instantiate(file string) error {
	ctx := context.Background()
	s.close()
	binary, err := os.ReadFile(filepath.Join(s.folder, file))
	if err != nil {
		return err
	}
	r, err := Module(binary, Options{})
	if err != nil {
		return nil //nolint:nilerr // what the runtime does not support is refused: imported memories, for example
	}
	compiled, err := s.runtime.CompileModule(ctx, r.Code)
	if err != nil {
		return fmt.Errorf("%s: compile the rewritten module: %w", file, err)
	}
	if len(compiled.ImportedFunctions()) > 0 {
		return nil
	}
	const most = 2048 // pages
	memory := &space{most: uint64(min(r.Memory.Max, most)) << 16}
	m, err := s.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, memory), compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	switch {
	case err != nil && strings.Contains(err.Error(), "not instantiated"):
		return nil // it imports a table or a global, which the engine does not list
	case err != nil:
		return fmt.Errorf("%s: %w", file, err)
	}
	refuelForAll(m)
	if !begin(m, r, memory) {
		return fmt.Errorf("%s: its start fails", file)
	}
	s.module = m
	return nil
}

// refuelForAll sets the meter so high that no test uses it up.
func refuelForAll(m api.Module) {
	if meter, ok := m.ExportedGlobal(MeterName).(api.MutableGlobal); ok {
		meter.Set(math.MaxInt32)
	}
}

func (s *specRun) close() {
	if s.module != nil {
		_ = s.module.Close(context.Background())
	}
	s.module = nil
}

// invoke calls a function of the current module. ok is false for a call that is not tested here.
func (s *specRun) invoke(c *specCommand) (results []uint64, ok bool, err error) {
	if s.module == nil || c.Action.Type != "invoke" || c.Action.Module != "" {
		return nil, false, nil
	}
	f := s.module.ExportedFunction(c.Action.Field)
	args := make([]uint64, len(c.Action.Args))
	for i, v := range c.Action.Args {
		if args[i], ok = v.bits(); !ok {
			return nil, false, nil
		}
	}
	if f == nil {
		return nil, false, nil
	}
	refuelForAll(s.module)
	results, err = f.Call(context.Background(), args...)
	return results, true, err
}

// run executes one command, and returns an error if its assertion does not hold.
func (s *specRun) run(c *specCommand) error {
	switch c.Type {
	case "module":
		return s.instantiate(c.Filename)
	case "action", "assert_return":
		results, ok, err := s.invoke(c)
		if !ok || err != nil {
			return err
		}
		return s.compare(c, results)
	case "assert_trap", "assert_exhaustion":
		results, ok, err := s.invoke(c)
		if ok && err == nil {
			return fmt.Errorf("it returned %v, want the trap %q", results, c.Text)
		}
		if ok {
			s.held++
		}
	}
	return nil
}

func (s *specRun) compare(c *specCommand, results []uint64) error {
	for i, want := range c.Expected {
		if _, number := want.text(); !number {
			return nil // vectors and references are not compared
		}
		if i >= len(results) || !want.matches(results[i]) {
			return fmt.Errorf("results %v, want %s", results, want.Value)
		}
	}
	s.held++
	return nil
}

// TestConformanceSpecification runs the tests of the WebAssembly specification on rewritten modules.
func TestConformanceSpecification(t *testing.T) {
	held := 0
	for _, folder := range specificationTests(t) {
		files, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests in %s: %v", folder, err)
		}
		for _, file := range files {
			t.Run(filepath.Base(filepath.Dir(folder))+"/"+filepath.Base(file), func(t *testing.T) { held += runSpecification(t, file) })
		}
	}
	t.Logf("%d assertions hold", held)
	if held < 15_000 {
		t.Errorf("only %d assertions were tested", held)
	}
}

func runSpecification(t *testing.T, file string) (held int) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var script struct{ Commands []specCommand }
	if err := json.Unmarshal(text, &script); err != nil {
		t.Fatal(err)
	}
	config := wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2)
	s := &specRun{runtime: wazero.NewRuntimeWithConfig(context.Background(), config), folder: filepath.Dir(file)}
	defer s.runtime.Close(context.Background())
	for i := range script.Commands {
		if err := s.run(&script.Commands[i]); err != nil {
			t.Errorf("line %d: %s %s: %v", script.Commands[i].Line, script.Commands[i].Type, script.Commands[i].Action.Field, err)
		}
	}
	return s.held
}
