package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// Programs of testdata/strangers use OpenCL through third-party libraries, and print
// results that must not differ between devices.

// The library keeps compiled programs in its user's home: the second run takes
// them from there.
func TestStrangerPyOpenCL(t *testing.T) {
	sharesDevice(t)
	const python = "/usr/bin/python3" // Debian's, whose packages they are
	need.Require(t, "python3-pyopencl", exists("/usr/lib/python3/dist-packages/pyopencl"), "install python3-pyopencl")
	script, err := filepath.Abs("testdata/strangers/arrays.py")
	if err != nil {
		t.Fatal(err)
	}
	p := thirdPartyProgram("PyOpenCL", python, script)
	local := p.Run(t.Context(), suite.Local, t.TempDir())
	for name, way := range paths(shared(t)) {
		home := t.TempDir()
		for _, cache := range []string{"cold", "warm"} {
			if err := p.Compare(local, p.Run(t.Context(), way, home)); err != nil {
				t.Errorf("over %s with a %s cache: %v", name, cache, err)
			}
		}
	}
}

func TestStrangerCPlusPlus(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "c++")
	need.Require(t, "opencl-clhpp-headers", exists("/usr/include/CL/opencl.hpp"), "install opencl-clhpp-headers")
	same(t, thirdPartyProgram("opencl.hpp", build(t, "c++", "strangers/objects.cpp", "-std=c++17", "-lOpenCL", "-lpthread")))
}

func TestStrangerCLFFT(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "cc")
	need.Require(t, "libclfft-dev", exists("/usr/include/clFFT.h"), "install libclfft-dev")
	same(t, thirdPartyProgram("clFFT", build(t, "cc", "strangers/transform.c", "-std=gnu11", "-lclFFT", "-lOpenCL", "-lm")))
}

// thirdPartyProgram is a program all of whose standard output counts.
func thirdPartyProgram(name string, args ...string) suite.Program {
	return suite.Program{Name: name, Args: args, Home: true, Limit: 3 * time.Minute, Essence: func(r suite.Result) (string, error) {
		return r.Stdout, r.Err
	}}
}

// build compiles a program of testdata.
func build(t testing.TB, compiler, source string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-O1", "-w", "-o", path, filepath.Join("testdata", source)}, flags...)
	if out, err := exec.CommandContext(t.Context(), compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", compiler, source, err, out)
	}
	return path
}
