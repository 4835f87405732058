package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/ebitengine/purego" // which provides cgo's functions
)

// A program that restricts itself reaches what its rules allow, from all of its threads, also if it
// contains purego. It has no capabilities, with rules or without.
func TestReexecute(t *testing.T) {
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
	for _, rules := range []string{"", "none"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestReexecute$", "-test.v")
		cmd.Env = append(os.Environ(), "SANDBOX_TEST_DIR="+dir, "SANDBOX_TEST_RULES="+rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("rules %q: %v: %s", rules, err, out)
		}
	}
}

func insideRules(t *testing.T, dir string) {
	const restricted = "SANDBOX_TEST_RESTRICTED"
	unruled := os.Getenv("SANDBOX_TEST_RULES") == "none"
	if os.Getenv(restricted) == "" {
		rules := &Rules{Write: []string{filepath.Join(dir, "own")}, Read: []string{"/etc", "/proc", "/usr", "/lib", "/lib64"}}
		if unruled {
			rules = nil
		}
		t.Fatalf("nothing was tested: %v", Reexecute(rules, append(os.Environ(), restricted+"=1")))
	}
	status, err := os.ReadFile("/proc/self/status")
	for _, set := range []string{"CapPrm", "CapEff", "CapAmb"} {
		if err != nil || !strings.Contains(string(status), set+":\t0000000000000000") {
			t.Errorf("the program has capabilities: %v\n%s", err, status)
		}
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
			if allowed := unruled || path != filepath.Join(dir, "other", "file"); (err == nil) != allowed {
				t.Errorf("reading %s: %v", path, err)
			}
		}
	}
}
