package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/ebitengine/purego" // which provides cgo's functions
	"golang.org/x/sys/unix"
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
	for what, err := range changeAsOwner(filepath.Join(dir, "other", "file")) {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "own", "new")); err == nil && info.Mode().Perm() != 0o600 {
		t.Errorf("a new file: %v", info.Mode())
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

// changeAsOwner changes a file that it may not open, uses other objects of its user, and creates a file.
func changeAsOwner(path string) map[string]error {
	_, shared := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	_, key := unix.KeyctlInt(unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_USER_KEYRING, 1, 0, 0)
	own := filepath.Join(filepath.Dir(filepath.Dir(path)), "own", "new")
	return map[string]error{
		"change the mode": unix.Chmod(path, 0o777), "truncate": unix.Truncate(path, 0),
		"change the group": unix.Chown(path, -1, os.Getgid()), "set an attribute": unix.Setxattr(path, "user.known", []byte("x"), 0),
		"get shared memory": shared, "read the user's keys": key,
		"change the mode of a new file": errors.Join(os.WriteFile(own, nil, 0o666), unix.Chmod(own, 0o666)),
	}
}
