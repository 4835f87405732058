package optimize

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

const (
	testPages = 16
	testFuel  = 1 << 18
)

// trace is what a module does when all its exports are called with some numbers.
type trace struct {
	Start  string
	Calls  []string
	Memory string
	Whole  bool // no call ran out of fuel
}

// engines run modules: one as they are, and one with this package's Yield.
type engines struct{ plain, metered wazero.Runtime }

func newEngines(tb testing.TB) engines {
	features := api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst
	config := wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features)
	e := engines{
		plain:   wazero.NewRuntimeWithConfig(context.Background(), config.WithMemoryLimitPages(testPages)),
		metered: wazero.NewRuntimeWithConfig(context.Background(), config),
	}
	tb.Cleanup(func() {
		_ = e.plain.Close(context.Background())
		_ = e.metered.Close(context.Background())
	})
	return e
}

// space is a memory with the limit that the module declared.
type space struct {
	b    []byte
	most uint64
	over bool // the code asked for more fuel
}

func (s *space) Allocate(_, _ uint64) experimental.LinearMemory { return s }
func (s *space) Free()                                          {}

func (s *space) Reallocate(size uint64) []byte {
	if size == Yield {
		s.over = true
		return nil
	}
	if size > s.most {
		return nil
	}
	s.b = append(s.b, make([]byte, size-uint64(len(s.b)))...)
	return s.b
}

// original runs a module as it is, with the calls that like made. ok says whether the
// engine takes it.
func (e engines) original(file []byte, like trace) (t trace, ok bool) {
	ctx := context.Background()
	compiled, err := e.plain.CompileModule(ctx, file)
	if err != nil {
		return t, false
	}
	defer compiled.Close(ctx)
	s := &space{most: testPages << 16}
	m, err := e.plain.InstantiateModule(experimental.WithMemoryAllocator(ctx, s), compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return trace{Start: "error"}, true
	}
	defer m.Close(ctx)
	t.Calls = callAll(m, func(n int) bool { return n < len(like.Calls) })
	if t.Whole = like.Whole; t.Whole {
		t.Memory = string(s.b)
	}
	return t, true
}

// rewritten runs what Module made, until the first call that runs out of fuel. Then
// the memory is left out.
func (e engines) rewritten(r *Result) (t trace, err error) {
	ctx := context.Background()
	compiled, err := e.metered.CompileModule(ctx, r.Code)
	if err != nil {
		return t, err
	}
	defer compiled.Close(ctx)
	s := &space{most: uint64(min(r.Memory.Max, testPages)) << 16}
	m, err := e.metered.InstantiateModule(experimental.WithMemoryAllocator(ctx, s), compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return trace{Start: "error"}, nil
	}
	defer m.Close(ctx)
	refuel := func(int) bool {
		m.ExportedGlobal(MeterName).(api.MutableGlobal).Set(testFuel)
		return !s.over
	}
	refuel(0)
	if !begin(m, r, s) {
		if s.over {
			return trace{Start: "too long"}, nil
		}
		return trace{Start: "error"}, nil
	}
	t.Calls = callAll(m, refuel)
	if s.over {
		t.Calls = t.Calls[:max(len(t.Calls)-1, 0)]
		return t, nil
	}
	t.Memory, t.Whole = string(s.b), true
	return t, nil
}

// begin does what an engine does at the start.
func begin(m api.Module, r *Result, s *space) bool {
	for _, d := range r.Data {
		if uint64(d.Offset)+uint64(len(d.Bytes)) > uint64(len(s.b)) {
			return false
		}
		copy(s.b[d.Offset:], d.Bytes)
	}
	if !r.Start {
		return true
	}
	_, err := m.ExportedFunction(StartName).Call(context.Background())
	return err == nil
}

// callAll calls all exports in the order of their names, as long as before says so.
func callAll(m api.Module, before func(n int) bool) (calls []string) {
	var names []string
	for name := range m.ExportedFunctionDefinitions() {
		if name != StartName {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		f := m.ExportedFunction(name)
		for _, arg := range []uint64{0, 1, 2, 3, 10, 1 << 16, 1<<32 - 1} {
			if !before(len(calls)) {
				return calls
			}
			args := slices.Repeat([]uint64{arg}, len(f.Definition().ParamTypes()))
			results, err := f.Call(context.Background(), args...)
			calls = append(calls, fmt.Sprint(name, args, results, err != nil))
		}
	}
	return calls
}

// readsDropped says whether the code may read active segments again. The standard says
// that they are empty after the start, and so they are here; this engine leaves them.
func readsDropped(r *Result) bool {
	m, err := parse(withoutReserved(r.Code))
	return err == nil && m.sections[wasmbin.SectionData] != nil && len(r.Data) > 0
}

// same fails if a module that was accepted behaves otherwise than before.
func (e engines) same(t *testing.T, file []byte) {
	t.Helper()
	r, err := Module(file, Options{})
	if err != nil || r.Memory.Min > testPages || readsDropped(r) {
		return
	}
	got, err := e.rewritten(r)
	if got.Start == "too long" {
		return
	}
	want, ok := e.original(file, got)
	switch {
	case !ok:
		return
	case err != nil:
		t.Fatalf("the original compiles, the rewritten module does not: %v", err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-original +rewritten):\n%.2000s", diff)
	}
}

func TestSameBehaviour(t *testing.T) {
	e := newEngines(t)
	for name, file := range programs() {
		t.Run(name, func(t *testing.T) {
			r, err := Module(file, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.rewritten(r)
			if err != nil || len(got.Calls) < 5 {
				t.Fatalf("%d calls, %v", len(got.Calls), err)
			}
			if _, ok := e.original(file, got); !ok {
				t.Fatal("the engine does not take the original")
			}
			e.same(t, file)
			plain, err := Module(file, Options{Unmetered: true})
			if err != nil || plain.Checks != 0 {
				t.Errorf("unmetered: %v, %+v", err, plain)
			}
		})
	}
}

// FuzzModule feeds the rewriter what is no module, or hardly one any more.
func FuzzModule(f *testing.F) {
	for _, file := range programs() {
		f.Add(file)
	}
	for i := range 8 {
		f.Add(tangleFile(rapid.Custom(drawTangle).Example(i)))
	}
	for i := range 8 {
		f.Add(frameFile(rapid.Custom(drawFrame).Example(i)))
		f.Add(roundsFile(rapid.Custom(drawRounds).Example(i)))
	}
	e := newEngines(f)
	f.Fuzz(func(t *testing.T, file []byte) { e.same(t, file) })
}
