package ctest_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// TestSpin: of spinning and sleeping at once, waits use what is shorter, and follow a change.
func TestSpin(t *testing.T) {
	need.Program(t, "gcc")
	path := filepath.Join(t.TempDir(), "spin")
	if out, err := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I../ring", "-o", path, "testdata/spin.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if out, err := exec.Command(path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
