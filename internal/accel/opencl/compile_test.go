package opencl

import (
	"errors"
	"testing"

	"github.com/outboard-run/outboard"
)

// threeKernels need arguments of all forms, and a work group of a given size.
const threeKernels = `
kernel void add(global uint *to, uint n, float4 v, local uint *shared) {
	shared[0] = n; to[get_global_id(0)] += shared[0] + (uint)v.x + ONE;
}
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void four(global uint *to) { to[get_global_id(0)] = ONE; }
kernel void pick(read_only image2d_t from, sampler_t s, global uint4 *to) { to[0] = read_imageui(from, s, (int2)(0, 0)); }
`

func compileOptions(t *testing.T) (CompileOptions, *ProgramRecipe) {
	t.Helper()
	flags := "-DONE=1"
	return CompileOptions{Driver: needDriver(t), IncludeDir: t.TempDir()}, &ProgramRecipe{Source: []byte(threeKernels), Options: &flags}
}

// TestCompileKernels: every kernel of a program is compiled for its binaries, whatever its arguments
// are, and the first number without a kernel is told, by which the caller ends.
func TestCompileKernels(t *testing.T) {
	opts, program := compileOptions(t)
	opts.Binaries = true
	for opts.Kernel = range 3 {
		if err := Compile(opts, program, nil); err != nil {
			t.Errorf("kernel %d: %v", opts.Kernel, err)
		}
	}
	for _, opts.Kernel = range []int{3, -1} {
		if err := Compile(opts, program, nil); !errors.Is(err, ErrNoKernel) {
			t.Errorf("kernel %d of 3: %v", opts.Kernel, err)
		}
	}
}

// TestCompileLaunches: a kernel is compiled for a launch with arguments of the sizes of the recipe.
func TestCompileLaunches(t *testing.T) {
	opts, program := compileOptions(t)
	launches := []LaunchRecipe{
		{Kernel: "add", Args: []ArgRecipe{{formMem, 8}, {formBytes, 4}, {formBytes, 16}, {formLocal, 64}}, Global: []uint64{64}, Local: []uint64{16}},
		{Kernel: "add", Args: []ArgRecipe{{formMem, 8}, {formBytes, 4}, {formBytes, 16}, {formLocal, 64}}, Offset: []uint64{3}, Global: []uint64{64}},
		{Kernel: "pick", Args: []ArgRecipe{{formMem, 8}, {formSampler, 8}, {formMem, 8}}, Global: []uint64{1}},
	}
	for _, launch := range launches {
		if err := Compile(opts, program, &launch); err != nil {
			t.Errorf("%+v: %v", launch, err)
		}
	}
	for _, launch := range []LaunchRecipe{
		{Kernel: "none", Global: []uint64{1}},
		{Kernel: "four", Args: []ArgRecipe{{formBytes, 3}}, Global: []uint64{4}},
		{Kernel: "four", Args: []ArgRecipe{{formQueue, 8}}, Global: []uint64{4}},
		{Kernel: "four", Args: []ArgRecipe{{formMem, 8}}, Global: []uint64{3}, Local: []uint64{3}},
	} {
		if err := Compile(opts, program, &launch); err == nil {
			t.Errorf("%+v was compiled", launch)
		}
	}
}

func TestCompileIncludes(t *testing.T) {
	opts, program := compileOptions(t)
	flags := "-I/outboard-include/0/a"
	program.Source, program.Options = []byte("#include \"x.h\"\n"), &flags
	program.Includes = packIncludes(map[string]string{"0/a/x.h": "kernel void k(global uint *to) { to[0] = 1; }\n"})
	if err := Compile(opts, program, nil); err != nil {
		t.Error(err)
	}
}

func TestCompileRefuses(t *testing.T) {
	opts, program := compileOptions(t)
	if err := Compile(opts, &ProgramRecipe{Source: []byte("no kernel")}, nil); !errors.Is(err, ErrNoKernel) {
		t.Errorf("a source with an error: %v", err)
	}
	opts.DeviceName = "another one"
	if err := Compile(opts, program, nil); outboard.KindOf(err) != outboard.NoDevice {
		t.Errorf("a device of another name: %v", err)
	}
	opts.DeviceName, opts.Device = "", 99
	if err := Compile(opts, program, nil); outboard.KindOf(err) != outboard.NoDevice {
		t.Errorf("device 99: %v", err)
	}
}
