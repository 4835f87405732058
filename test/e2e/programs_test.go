package e2e

import (
	"regexp"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
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
	same(t, suite.FFmpeg("avgblur_opencl=sizeX=3", 20))
}

func TestFFmpegFilters(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "ffmpeg")
	t.Run("unsharp", func(t *testing.T) { sameOver(t, suite.FFmpeg("unsharp_opencl", 20), "harbour") })
	// Two inputs, images of another format, a program of the user's own.
	all := graphs(t)
	for name, node := range map[string]string{"overlay": "dinghy", "colorkey": "harbour", "programs": "dinghy"} {
		t.Run(name, func(t *testing.T) { sameOver(t, filter(name, all[name], 20), node) })
	}
}

// The quick ones; `make conformance` runs all. The first one uses both ways to the device, the others one
// way each: what they compile takes nearly all of their time.
func TestCLBlast(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "clblast_test_xaxpy")
	t.Run("xaxpy", func(t *testing.T) { same(t, suite.CLBlast("xaxpy")) })
	for name, node := range map[string]string{"xdot": "harbour", "xscal": "dinghy", "xswap": "harbour", "xnrm2": "dinghy", "xhad": "harbour"} {
		t.Run(name, func(t *testing.T) { sameOver(t, suite.CLBlast(name), node) })
	}
}

// Cold and warm caches of compiled kernels take different ways: source and binary. Its kernels are
// compiled without optimisation, which takes a sixth of the time.
func TestHashcat(t *testing.T) {
	beside(t)
	need.Program(t, "hashcat")
	p := suite.Hashcat()
	r := own(t, rig.Options{Nodes: withoutCache(pair()), Env: []string{"POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable"}})
	way, home := through(r, "dinghy"), t.TempDir()
	for _, cache := range []string{"cold", "warm"} {
		if _, err := p.Essence(p.Run(t.Context(), way, home)); err != nil {
			t.Errorf("with a %s cache: %v", cache, err)
		}
	}
}

// same runs a program locally and on both ways to a borrowed device.
func same(t *testing.T, p suite.Program) {
	t.Helper()
	sameOver(t, p, "harbour", "dinghy")
}

// sameOver runs a program locally, and from nodes on a borrowed device: from harbour over shared memory,
// from dinghy over the network.
func sameOver(t *testing.T, p suite.Program, nodes ...string) {
	t.Helper()
	r := shared(t)
	local := p.Run(t.Context(), suite.Local, t.TempDir())
	for _, node := range nodes {
		if err := p.Compare(local, p.Run(t.Context(), through(r, node), t.TempDir())); err != nil {
			t.Errorf("%s from %s: %v", p.Name, node, err)
		}
	}
}
