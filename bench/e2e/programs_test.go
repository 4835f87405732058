package e2e

import (
	"regexp"
	"testing"

	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// What clinfo may say differently on a borrowed device, and why:
var clinfoDiffers = regexp.MustCompile(`(?i)` +
	`SVM|Fine-grained|Coarse-grained|^\s+Atomics\s` + // shared virtual memory needs one address space
	`|Extensions` + // only what is forwarded is listed
	`|cl_pocl_content_size` +
	`|Queue on device|Device enqueue`)

func TestCLInfo(t *testing.T) {
	need.Program(t, "clinfo")
	same(t, suite.CLInfo(clinfoDiffers))
}

func TestFFmpeg(t *testing.T) {
	need.Program(t, "ffmpeg")
	for _, filter := range []string{"avgblur_opencl=sizeX=3", "unsharp_opencl"} {
		t.Run(filter, func(t *testing.T) { same(t, suite.FFmpeg(filter, 20)) })
	}
}

// The quick ones; `make conformance` runs all.
func TestCLBlast(t *testing.T) {
	need.Program(t, "clblast_test_xaxpy")
	for _, name := range []string{"xaxpy", "xdot", "xscal", "xswap", "xnrm2", "xhad"} {
		t.Run(name, func(t *testing.T) { same(t, suite.CLBlast(name)) })
	}
}

// Cold and warm caches of compiled kernels take different ways: source and binary.
func TestHashcat(t *testing.T) {
	need.Program(t, "hashcat")
	p := suite.Hashcat()
	way, home := through(shared(t), "dinghy"), t.TempDir()
	for _, cache := range []string{"cold", "warm"} {
		if _, err := p.Essence(p.Run(t.Context(), way, home)); err != nil {
			t.Errorf("with a %s cache: %v", cache, err)
		}
	}
}

// same runs a program locally and on both ways to a borrowed device.
func same(t *testing.T, p suite.Program) {
	r := shared(t)
	local := p.Run(t.Context(), suite.Local, t.TempDir())
	for name, way := range paths(r) {
		if err := p.Compare(local, p.Run(t.Context(), way, t.TempDir())); err != nil {
			t.Errorf("%s over %s: %v", p.Name, name, err)
		}
	}
}
