package function

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/image"
	"github.com/outboard-run/outboard/internal/function/optimize"
)

// initDeadline bounds the initialisation of a module.
const initDeadline = time.Minute

// Settings configure a function.
type Settings struct {
	// Name is the function's name in errors, "shop/cart".
	Name string
	// Limits bound the function.
	Limits Limits
	// Args are the function's arguments, the first one its name. They and the environment are read
	// at deploy and are part of the image.
	Args []string
	// Env is the function's environment.
	Env []Variable
	// Window is the size of the part of an arena that a call sees, if the module exports
	// outboard_arena. It is a part of the function's memory. 0 means 64 MiB, but a quarter of the
	// memory limit at most, and less if the module has no room for that.
	Window outboard.Bytes
	// Unmetered leaves the module without checks: no deadline and no fuel, and a long call holds up
	// the whole process. It serves to measure the cost of the checks.
	Unmetered bool
}

// Variable is a variable of an environment.
type Variable struct{ Name, Value string }

// version is a deployed module: everything that its slots share.
type version struct {
	runtime  *Runtime
	settings Settings
	code     *optimize.Result
	compiled wazero.CompiledModule
	most     int // bytes that a memory may have
	reserve  int // bytes of a range
	image    *image.Image
	window   image.Window
	globals  []uint64 // after initialisation
}

// Deploy prepares a module for calls.
func (r *Runtime) Deploy(ctx context.Context, module []byte, s Settings) (*Function, error) {
	op := "deploy " + s.Name
	s.Limits.setDefaults()
	if err := s.Limits.validate(); err != nil {
		return nil, outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	v := &version{runtime: r, settings: s}
	if err := v.prepare(ctx, module); err != nil {
		v.close()
		return nil, outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	f := newFunction(v)
	if !r.add(f) {
		_ = f.Close()
		return nil, outboard.Errorf(outboard.SessionLost, op, "the runtime is closed")
	}
	return f, nil
}

func (v *version) prepare(ctx context.Context, module []byte) error {
	var err error
	if v.code, err = v.runtime.modules.load(module, v.settings.Unmetered); err != nil {
		return err
	}
	if err := v.size(); err != nil {
		return err
	}
	ctx = experimental.WithCompilationWorkers(ctx, optimize.Workers())
	if v.compiled, err = v.runtime.engine.CompileModule(ctx, v.code.Code); err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	if err := v.imports(); err != nil {
		return err
	}
	return v.initialise(ctx)
}

// size computes the bounds of an instance's memory.
func (v *version) size() error {
	v.most = min(int(v.settings.Limits.Memory), int(v.code.Memory.Max)*wasmPage)
	v.most -= v.most % wasmPage
	if least := int(v.code.Memory.Min) * wasmPage; least > v.most {
		return fmt.Errorf("the module's memory begins with %v: raise the function's memory limit of %v", outboard.Bytes(least), v.settings.Limits.Memory)
	}
	v.reserve = max(v.most, wasmPage)
	return nil
}

// imports refuses a module with imports that the host does not provide.
func (v *version) imports() error {
	var missing []string
	for _, f := range v.compiled.ImportedFunctions() {
		from, name, _ := f.Import()
		host := v.runtime.engine.Module(from)
		if host == nil || (from != hostModule && from != wasiModule && from != nnModule && from != textModule) || host.ExportedFunctionDefinitions()[name] == nil {
			missing = append(missing, from+"."+name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("imports %s: nothing here provides it; there are %s, %s, %s and %s", strings.Join(slices.Compact(missing), ", "), hostModule, wasiModule, nnModule, textModule)
}

// writeSegments writes the data segments.
func (s *slot) writeSegments(data []optimize.Segment) error {
	memory := s.memory.space.Bytes()[:s.memory.size]
	for i, d := range data {
		if uint64(d.Offset)+uint64(len(d.Bytes)) > uint64(len(memory)) {
			return fmt.Errorf("data segment %d lies outside of the memory", i)
		}
		copy(memory[d.Offset:], d.Bytes)
	}
	return nil
}

func (v *version) capture(s *slot) (err error) {
	if v.image, err = image.New(s.memory.space.Bytes()[:s.memory.size], v.window); err != nil {
		return err
	}
	for _, g := range s.globals {
		v.globals = append(v.globals, g.Get())
	}
	return nil
}

func (v *version) close() {
	if v.compiled != nil {
		_ = v.compiled.Close(context.Background())
	}
	if v.image != nil {
		_ = v.image.Close()
	}
}
