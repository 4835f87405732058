package worker

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// A worker builds kernels whether it has a root of its own or not, and whichever it had when
// its cache was made.
func TestBuildWithoutOwnRoot(t *testing.T) {
	requireDevice(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		name     string
		readable []string
	}{
		{name: "with a root"},
		// The sandbox makes this link itself, which fails when it is there already.
		{name: "without a root", readable: []string{"/dev/fd"}},
		{name: "with a root again"},
	} {
		t.Run(tt.name, func(t *testing.T) { buildOnHost(t, dir, tt.readable) })
	}
}

// buildOnHost runs kernels in a session of a host whose folder is dir. A readable path that
// can't be shown keeps its workers from a root of their own.
func buildOnHost(t *testing.T, dir string, readable []string) {
	h, err := lend.Open(t.Context(), lend.Options{
		Dir: dir, Command: []string{os.Args[0], workerArgument}, Sandbox: lend.Sandbox{Readable: readable},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if strings.Contains(h.Isolation(), string(sandbox.Mounts)) && readable != nil {
		t.Fatalf("isolated by %s: the fallback was not tested", h.Isolation())
	}
	s, p := startSession(t, h, "clpeak")
	defer s.Close()
	got, err := p.kernel(`kernel void k(global uint *a) { a[get_global_id(0)] = 7; }`)
	if err != nil {
		t.Fatalf("isolated by %s: %v", h.Isolation(), err)
	}
	if binary.LittleEndian.Uint32(got[60:]) != 7 {
		t.Errorf("the kernel wrote %v", got)
	}
}
