package as_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/function/guestsuite"
	"github.com/outboard-run/outboard/internal/need"
)

func build(t *testing.T) []byte {
	t.Helper()
	_, err := os.Stat("node_modules/.bin/asc")
	need.Require(t, "asc", err == nil, "run npm ci in guest/as (`make test` does)")
	need.Program(t, "node")
	file := filepath.Join(t.TempDir(), "all.wasm")
	build := exec.CommandContext(t.Context(), "node_modules/.bin/asc", "testdata/all.ts", "-o", file, "-O3", "--runtime", "stub",
		"--use", "abort=outboard/abort", "--use", "seed=outboard/seed")
	if out, err := build.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func TestFunction(t *testing.T) {
	f := guestsuite.Run(t, guestsuite.Language{Module: build(t), Taken: "1 0", Full: "1 1"})
	t.Run("words", func(t *testing.T) { testWords(t, f) })
}

// testWords checks what functions write to the log.
func testWords(t *testing.T, f *function.Function) {
	call := func(request string) (function.Response, error) {
		return f.Call(t.Context(), function.Request{Body: []byte(request)})
	}
	p, err := call("throw a storm")
	if !errors.Is(err, function.ErrTrap) || !strings.Contains(string(p.Stderr.Text), "testdata/all.ts:") || !strings.HasSuffix(string(p.Stderr.Text), ": a storm\n") {
		t.Errorf("got %v, %q", err, p.Stderr.Text)
	}
	if _, err := call("bounds abc"); !errors.Is(err, function.ErrTrap) {
		t.Errorf("got %v", err)
	}
	if p, err := call("log all is well"); err != nil || string(p.Stderr.Text) != "all is well\n" {
		t.Errorf("got %v, %q", err, p.Stderr.Text)
	}
	if p, err := call("array abc"); err != nil || string(p.Body) != "cba" {
		t.Errorf("got %q, %v", p.Body, err)
	}
}
