package worker

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/lend"
)

const (
	opGetProgramInfo     = 0x44
	programBinarySizes   = 0x1165
	severalKernelsSource = `
kernel void a(global int *p, int x, double y) { p[get_global_id(0)] = x + (int)y; }
kernel __attribute__((reqd_work_group_size(8, 2, 1))) void b(global int *p, local int *l, int4 v) {
	l[get_local_id(0)] = v.x;
	barrier(CLK_LOCAL_MEM_FENCE);
	p[get_global_id(0)] += l[0];
}
kernel void c(constant int *p, global long *q, ulong n, read_only image2d_t i, sampler_t s) { q[n] = p[n] + get_image_width(i); }`
)

// A program that asks for its binaries finds all its kernels compiled in its next session: the
// compile step compiles each of them, though the driver ends the step's process at the first one
// that it cannot load.
func TestBinariesAreCompiled(t *testing.T) {
	requireDevice(t)
	dir := t.TempDir()
	h, err := lend.Open(t.Context(), lend.Options{Dir: dir, Command: []string{os.Args[0], workerArgument}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	askForBinaries(t, h)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(4 * time.Minute)
	for all := compiledKernels(t, dir); !hasCompiled(all, "/a/") || !hasCompiled(all, "/b/") || !hasCompiled(all, "/c/"); all = compiledKernels(t, dir) {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("compiled: %v, want kernels a, b and c", slices.Collect(maps.Keys(all)))
		}
	}
}

func hasCompiled(all map[string][32]byte, kernel string) bool {
	for path := range all {
		if strings.Contains(path, kernel) && !strings.Contains(path, "/draft/") {
			return true
		}
	}
	return false
}

// askForBinaries runs a session that builds a program and asks for the sizes of its binaries.
func askForBinaries(t *testing.T, h *lend.Host) {
	t.Helper()
	s, p := startSession(t, h, "binaries")
	defer s.Close()
	none := []uint64(nil)
	p.send(opCreateContext, none, []uint64{2}, 0, 0x100)
	p.send(opCreateProgram, 0x100, []byte(severalKernelsSource), 0x103)
	if status, _, err := p.call(opBuild, 0x103, none, []byte(nil), []byte(nil)); err != nil || status != 0 {
		t.Fatalf("build: status %d, %v, %v", status, err, s.Err())
	}
	if status, _, err := p.call(opGetProgramInfo, 0x103, programBinarySizes); err != nil || status != 0 {
		t.Fatalf("binaries: status %d, %v, %v", status, err, s.Err())
	}
}
