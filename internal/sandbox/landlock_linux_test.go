package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
)

// A process that is restricted reaches what its rules allow, from all of its threads.
func TestRestrictProcess(t *testing.T) {
	if dir := os.Getenv("SANDBOX_TEST_DIR"); dir != "" {
		insideRules(t, dir)
		return
	}
	dir := t.TempDir()
	for _, sub := range []string{"own", "other"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), withoutCgo(t), "-test.run", "^TestRestrictProcess$", "-test.v")
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// withoutCgo returns this program, or another build of it if this one has cgo, as the race detector
// needs: such a program cannot restrict itself.
func withoutCgo(t *testing.T) string {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"}) {
		return os.Args[0]
	}
	program := filepath.Join(t.TempDir(), "sandbox.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func insideRules(t *testing.T, dir string) {
	err := RestrictProcess(Rules{Write: []string{filepath.Join(dir, "own")}, Read: []string{"/etc"}})
	if errors.Is(err, ErrUnsupported) {
		t.Fatalf("this kernel has no Landlock, and nothing was tested: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan map[string]error)
	for range 8 { // on threads of their own, most of them
		go func() {
			all := map[string]error{}
			for _, path := range []string{filepath.Join(dir, "own", "file"), filepath.Join(dir, "other", "file"), "/etc/passwd"} {
				_, all[path] = os.ReadFile(path)
			}
			results <- all
		}()
	}
	for range 8 {
		for path, err := range <-results {
			if allowed := path != filepath.Join(dir, "other", "file"); (err == nil) != allowed {
				t.Errorf("reading %s: %v", path, err)
			}
		}
	}
}
