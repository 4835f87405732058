// Package disktest gives a test a disk of a few megabytes that it can fill.
package disktest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/need"
)

// nested marks a test that runs in namespaces of its own.
const nested = "OUTBOARD_TEST_NAMESPACES"

// Run calls test with the folder of a file system of the given size. Where this process may not
// mount one, the test runs again in a child process, in a user and a mount namespace of its own:
// t must be a top-level test.
func Run(t *testing.T, size outboard.Bytes, test func(t *testing.T, dir string)) {
	t.Helper()
	// t.TempDir returns paths that are too long for a socket's address.
	dir, err := os.MkdirTemp("", "disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	err = unix.Mount("none", dir, "tmpfs", 0, "mode=0700,size="+strconv.FormatInt(int64(size), 10))
	switch {
	case errors.Is(err, unix.EPERM) && os.Getenv(nested) == "":
		runNested(t)
		return
	case err != nil:
		need.Require(t, "mounts", false, "mount a file system, or allow user namespaces: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	test(t, dir)
}

// runNested runs the test t alone in a child process, as root of namespaces of its own.
func runNested(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	cmd.Env = append(os.Environ(), nested+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		need.Require(t, "mounts", false, "mount a file system, or allow user namespaces: "+err.Error())
	}
	t.Logf("in namespaces of its own:\n%s", out)
	if err != nil {
		t.Fail()
	}
}

// Fill writes a file until no byte fits on the file system of dir, and returns its path.
func Fill(t testing.TB, dir string) (path string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
