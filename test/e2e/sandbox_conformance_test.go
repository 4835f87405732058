//go:build conformance

package e2e

import (
	"os"
	"testing"

	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// Long programs in the strongest sandbox, as root and as an ordinary user.
func TestConformanceStrongestSandbox(t *testing.T) {
	for _, name := range []string{"clblast_test_xaxpy", "clpeak", "hashcat", "ffmpeg"} {
		need.Program(t, name)
	}
	sameIsolated(t, suite.FFmpeg("unsharp_opencl", 100), suite.CLBlast("xgemm"), suite.CLPeak(), suite.Hashcat())
}

// PyOpenCL in the strongest sandbox, as root and as an ordinary user: it generates kernels, and has
// many small launches, where the other programs have few.
func TestConformanceStrongestSandboxPython(t *testing.T) {
	need.Require(t, "python3-pyopencl", exists("/usr/lib/python3/dist-packages/pyopencl"), "install python3-pyopencl")
	script, err := os.ReadFile("testdata/strangers/arrays.py") // in an argument: other users can't read this folder everywhere
	if err != nil {
		t.Fatal(err)
	}
	sameIsolated(t, thirdPartyProgram("PyOpenCL", "/usr/bin/python3", "-c", string(script)))
}
