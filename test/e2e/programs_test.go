package e2e

import (
	"regexp"
	"testing"

	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// clinfoDiffers are the lines of clinfo that a borrowed device may say
// differently, and why.
var clinfoDiffers = regexp.MustCompile(`^ +(` +
	// Only extensions that are forwarded are listed.
	`Platform Extensions|Device Extensions|cl_[a-z0-9_]+ ` +
	// Shared virtual memory needs one address space, native kernels one process.
	`|Coarse-grained buffer sharing|Fine-grained buffer sharing|Atomics|Run native kernels` +
	// PoCL offers what memory is free when it is asked, a lease what it was then.
	`|Global memory size|Max memory allocation` +
	`) `)

func TestCLInfo(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "clinfo")
	same(t, suite.CLInfo(clinfoDiffers))
}

func TestFFmpeg(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "ffmpeg")
	for _, name := range []string{"avgblur_opencl=sizeX=3", "unsharp_opencl"} {
		t.Run(name, func(t *testing.T) { same(t, suite.FFmpeg(name, 20)) })
	}
	// Two inputs, images of another format, a program of the user's own.
	all := graphs(t)
	for _, name := range []string{"overlay", "colorkey", "programs"} {
		t.Run(name, func(t *testing.T) { same(t, filter(name, all[name], 20)) })
	}
}

// The quick ones; `make conformance` runs all.
func TestCLBlast(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "clblast_test_xaxpy")
	for _, name := range []string{"xaxpy", "xdot", "xscal", "xswap", "xnrm2", "xhad"} {
		t.Run(name, func(t *testing.T) { same(t, suite.CLBlast(name)) })
	}
}

// Cold and warm caches of compiled kernels take different ways: source and binary.
func TestHashcat(t *testing.T) {
	sharesDevice(t)
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
