package optimize

import (
	"bytes"
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// build runs the Go command for wasip1 and returns the module that it makes.
func build(t *testing.T, verb ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.wasm")
	command := exec.CommandContext(t.Context(), "go", append(verb[:len(verb)-1:len(verb)-1], "-ldflags=-s -w", "-o", file, verb[len(verb)-1])...)
	command.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// refuel is a memory whose code may go on for ever.
type refuel struct {
	space
	m api.Module
}

func (s *refuel) Allocate(_, _ uint64) experimental.LinearMemory { return s }

func (s *refuel) Reallocate(size uint64) []byte {
	if size == Yield {
		s.m.ExportedGlobal(MeterName).(api.MutableGlobal).Set(math.MaxInt32)
		return nil
	}
	return s.space.Reallocate(size)
}

// command runs a program to its end and returns what it wrote.
func command(t *testing.T, config wazero.RuntimeConfig, r *Result, args ...string) string {
	t.Helper()
	ctx := t.Context()
	engine := wazero.NewRuntimeWithConfig(ctx, config)
	defer engine.Close(context.WithoutCancel(ctx))
	wasi_snapshot_preview1.MustInstantiate(ctx, engine)
	compiled, err := engine.CompileModule(ctx, r.Code)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := &refuel{space: space{most: math.MaxUint32}}
	m, err := engine.InstantiateModule(experimental.WithMemoryAllocator(ctx, s), compiled, wazero.NewModuleConfig().
		WithName("").WithStartFunctions().WithStdout(&out).WithStderr(&out).WithArgs(args...).WithSysNanotime().WithSysWalltime())
	if err != nil {
		t.Fatal(err)
	}
	s.m = m
	if !begin(m, r, &s.space) {
		t.Fatal("the start fails")
	}
	if _, err := m.ExportedFunction("_start").Call(ctx); err != nil && !strings.Contains(err.Error(), "exit_code(0)") {
		t.Errorf("%v\n%s", err, out.Bytes())
	}
	return out.String()
}

// TestUnwinding runs a program whose functions are entered in their middle in all ways
// that there are, here and natively.
func TestUnwinding(t *testing.T) {
	want, err := exec.CommandContext(t.Context(), "go", "run", "./testdata/unwind").Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Module(build(t, "build", "./testdata/unwind"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The interpreter compiles at once; the compiler has Go's guests in the tests of
	// internal/function.
	if diff := cmp.Diff(string(want), command(t, wazero.NewRuntimeConfigInterpreter(), r, "unwind")); diff != "" {
		t.Errorf("(-native +direct jumps):\n%s", diff)
	}
}
