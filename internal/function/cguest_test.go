package function

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// cGuest builds a C guest.
func cGuest(t *testing.T, source string) []byte {
	t.Helper()
	for _, tool := range []string{"clang", "wasm-ld"} {
		need.Program(t, tool)
	}
	file := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.CommandContext(t.Context(), "clang", "--target=wasm32", "-O2", "-Wall", "-Werror", "-nostdlib", "-Wl,--no-entry",
		"-I", "../../guest/c", "-o", file, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCGuest(t *testing.T) {
	f := deploy(t, open(t, Options{}), cGuest(t, "testdata/c/sum.c"), Limits{})
	for range 3 {
		p, err := f.Call(t.Context(), Request{Body: bytes.Repeat([]byte{3}, 1000)})
		if err != nil {
			t.Fatal(err)
		}
		if sum, calls := binary.LittleEndian.Uint32(p.Body), binary.LittleEndian.Uint32(p.Body[4:]); sum != 3000 || calls != 1 {
			t.Errorf("got %d in call %d", sum, calls)
		}
	}
	a, err := f.Call(t.Context(), Request{Entry: "roll"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := f.Call(t.Context(), Request{Entry: "roll"}); err != nil || bytes.Equal(a.Body, b.Body) {
		t.Errorf("got %x and %x, %v", a.Body, b.Body, err)
	}
	if _, err := f.Call(t.Context(), Request{Entry: "fail"}); err == nil || err.Error() != "call app/test: no tide" {
		t.Errorf("got %v", err)
	}
	checkFresh(t, f)
}
