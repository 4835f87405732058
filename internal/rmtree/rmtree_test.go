package rmtree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fewDescriptors lets this process open no more than a few files.
func fewDescriptors(t *testing.T) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
}

// deepTree makes a tree with so many levels, two folders and two files on each, by names of which no
// process could write the path.
func deepTree(t *testing.T, dir string, levels int) {
	t.Helper()
	down := strings.Repeat("down", 10)
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for level := 0; err == nil && level < levels; level++ {
		err = errors.Join(unix.Mkdirat(at, down, 0o700), unix.Mkdirat(at, ".removed-"+strconv.Itoa(level), 0o700), unix.Symlinkat("/", at, "link"), unix.Mknodat(at, "fifo", unix.S_IFIFO|0o600, 0))
		if err != nil {
			break
		}
		next, failed := unix.Openat(at, down, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(at)
		at, err = next, failed
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(at)
}

// A tree with more levels than this process may have descriptors, or than a path may name, is
// removed.
func TestDeepTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	deepTree(t, dir, 300)
	fewDescriptors(t)
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is left: %v", err)
	}
}

// A wide tree is removed in the batches in which it is read.
func TestWideTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wide")
	for i := range batch + 10 {
		if err := os.MkdirAll(filepath.Join(dir, "a", fmt.Sprint(i), "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is left: %v", err)
	}
}

// Folders without permissions are removed, also by a user that is bound by them.
func TestFoldersWithoutPermissions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "closed")
	for _, path := range []string{"a/b/c/d", "e/f/g", "h"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"a/b/c", "a/b", "a", "e/f", "h"} {
		if err := os.Chmod(filepath.Join(dir, path), 0); err != nil {
			t.Fatal(err)
		}
	}
	asUser(t, dir, func() {
		if err := Remove(filepath.Join(dir, "a")); err != nil {
			t.Error(err)
		}
		if err := errors.Join(Remove(filepath.Join(dir, "e")), Remove(filepath.Join(dir, "h"))); err != nil {
			t.Error(err)
		}
	})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("%v are left, %v", entries, err)
	}
}

// user is that of files which foreign code writes, where the test's user is root.
const user = 1<<30 + 7

// asUser runs f, and where the test's user is root, as another user whose files those below dir are.
func asUser(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	chownAll(t, dir)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 {
			t.Error(errno)
			return
		}
		f()
	}()
	<-done
}

func chownAll(t *testing.T, dir string) {
	t.Helper()
	for parent := dir; parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, user, user))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Links are removed, and what they name stays.
func TestLinks(t *testing.T) {
	parent := t.TempDir()
	kept, dir := filepath.Join(parent, "kept"), filepath.Join(parent, "dir")
	if err := errors.Join(os.MkdirAll(filepath.Join(kept, "a"), 0o500), os.MkdirAll(filepath.Join(dir, "b"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{filepath.Join(dir, "l"), filepath.Join(dir, "b", "l"), filepath.Join(parent, "l")} {
		if err := os.Symlink(kept, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(Remove(dir), Remove(filepath.Join(parent, "l")), Remove(filepath.Join(parent, "missing")), Remove(filepath.Join(parent, "missing", "too"))); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(filepath.Join(kept, "a")); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("the folder that links name: %v, %v", info, err)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
		t.Errorf("%v are left, %v", entries, err)
	}
}
