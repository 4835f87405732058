package guest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/function/guestsuite"
)

func build(t *testing.T, source string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, source)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// TestFunction is the package as functions have it, in WebAssembly.
func TestFunction(t *testing.T) {
	f := guestsuite.Run(t, guestsuite.Language{
		Module: build(t, "./testdata/all"),
		Taken:  `operation 0 does not hold: put "ann", which is missing`,
		Full:   `operation 1 does not hold: add -1 to "free", at least 0`,
	})
	for name, test := range map[string]func(*testing.T, *function.Function){
		"alignment": testAlignment, "full arena": testArenaFull, "garbage": testGarbage, "sizes": testSizes, "image": testImage,
	} {
		t.Run(name, func(t *testing.T) { test(t, f) })
	}
}

// testImage looks at what each call begins with: a stack that is large enough to call deep,
// and what Warm did, twice, the second time after the last collection.
func testImage(t *testing.T, f *function.Function) {
	for request, want := range map[string]string{"depth": "10", "warm": "2 0"} {
		for range 2 {
			p, err := f.Call(t.Context(), function.Request{Body: []byte(request)})
			if err != nil || string(p.Body) != want {
				t.Errorf("%s: got %q, %v", request, p.Body, err)
			}
		}
	}
}

// testSizes sends requests that have room in what is kept for them, and others.
func testSizes(t *testing.T, f *function.Function) {
	for _, size := range []int{5, 6, 4094, 4095, 4096, 4097, 4098, 8192, 100_000} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7 / 3)
		}
		copy(body, "heap ")
		for range 2 {
			p, err := f.Call(t.Context(), function.Request{Body: body})
			if err != nil || !bytes.Equal(p.Body, body) {
				t.Errorf("of %d bytes came %d back: %v", size, len(p.Body), err)
			}
		}
	}
}

// testAlignment looks at what Alloc gives in an arena, and beside it.
func testAlignment(t *testing.T, f *function.Function) {
	arena, err := function.NewArena(32 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	for request, want := range map[string]string{"heap a": "heap a", "align": "0 0 3 5"} {
		p, err := f.Call(t.Context(), function.Request{Body: []byte(request), Arena: arena})
		if err != nil || string(p.Body) != want || p.Place != nil {
			t.Errorf("%s: got %q at %+v, %v", request, p.Body, p.Place, err)
		}
	}
}

// testArenaFull goes on in ordinary memory.
func testArenaFull(t *testing.T, f *function.Function) {
	arena, err := function.NewArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	p, err := f.Call(t.Context(), function.Request{Body: []byte("fill"), Arena: arena})
	if diff := cmp.Diff("41943040", string(p.Body)); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

// testGarbage has the collector run beside a window: it neither moves nor counts it.
func testGarbage(t *testing.T, f *function.Function) {
	arena, err := function.NewArena(8 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	p, err := f.Call(t.Context(), function.Request{Body: []byte("garbage"), Arena: arena})
	if err != nil {
		t.Fatal(err)
	}
	if p.Cost.Memory > 110<<20 {
		t.Errorf("the memory became %v large, %s MiB of it Go's", p.Cost.Memory, p.Body)
	}
}
